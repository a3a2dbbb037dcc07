// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stack_storm: a million events, each with a stack of its own. For tests of what counts stacks; nothing here is timed.
 *
 * The event is the tracepoint bpf_trace:bpf_trace_printk. Which call leads to it is chosen by the bits of a number: one
 * of 64 calls in the program, and one of four in each of the seven functions below it, the deepest that the verifier
 * lets. The widest choice is the outermost, where a tree of contexts that begins with the innermost address branches
 * last, so a stack takes little more than one node.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

/* Events of a run of the program at most; the verifier walks as many turns of the loop. */
#define STORM_TURNS 256

__u64 next_path; /* of the next event, on whatever CPU */
__u64 last_path; /* behind it, there are no more */

static const char text[] = "stack";

/* A call that stays apart from others like it: its address tells. */
#define SITE(number, call)                     \
	case number:                           \
		__attribute__((nomerge)) call; \
		break;

/* Calls one of four, by the two bits of `path` at `shift`. */
#define LEVEL(name, shift, call)                 \
	__noinline int name(__u64 path)          \
	{                                        \
		switch ((path >> (shift)) & 3) { \
			SITE(0, call)            \
			SITE(1, call)            \
			SITE(2, call)            \
			SITE(3, call)            \
		}                                \
		return 0;                        \
	}

LEVEL(level_7, 18, bpf_trace_printk(text, sizeof(text)))
LEVEL(level_6, 16, level_7(path))
LEVEL(level_5, 14, level_6(path))
LEVEL(level_4, 12, level_5(path))
LEVEL(level_3, 10, level_4(path))
LEVEL(level_2, 8, level_3(path))
LEVEL(level_1, 6, level_2(path))

#define SITES_4(first)                 \
	SITE(first, level_1(path))     \
	SITE(first + 1, level_1(path)) \
	SITE(first + 2, level_1(path)) \
	SITE(first + 3, level_1(path))
#define SITES_16(first) SITES_4(first) SITES_4(first + 4) SITES_4(first + 8) SITES_4(first + 12)

/* Makes the next events. */
SEC("syscall")
int storm(void *ctx)
{
	for (int turn = 0; turn < STORM_TURNS; turn++) {
		__u64 path = __sync_fetch_and_add(&next_path, 1);

		if (path >= last_path)
			break;
		switch (path & 63) {
			SITES_16(0)
			SITES_16(16)
			SITES_16(32)
			SITES_16(48)
		}
	}
	return 0;
}
