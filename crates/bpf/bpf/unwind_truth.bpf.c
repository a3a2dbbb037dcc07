// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * unwind_truth: takes each stack of a real event twice, by unwind.bpf.h and by bpf_get_stack(), and compares; and times
 * one of them.
 *
 * The helper's stack begins with the program's own frames; the walk's begins with what called the program. From there
 * on they must be the same, address by address, to the end of both.
 *
 * In the number: taking the stack once, with caches and predictions as the event finds them, and one reading of the
 * clock. The take that is timed goes first: the other finds the stack's memory warm.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

#include "unwind.bpf.h"
#include "unwind_truth.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct truth_counts {
	__u64 events;
	__u64 equal;
	__u64 unlisted; /* equal but for generated code that the kernel does not list */
	__u64 different;
	__u64 nested; /* events within this program, on its CPU: not compared */
	__u64 unheard; /* differences without room in the ring buffer */
	__u64 ns; /* of the take that is timed, all together */
	__u64 frames; /* addresses by the walk, all together */
	__u64 deepest; /* addresses of the longest stack */
};

/* Both stacks. */
struct truth_stacks {
	__u64 helper_depth;
	struct unwind_stack walked;
	__u64 helper[UNWIND_DEPTH];
};

struct truth_scratch {
	__u64 busy;
	struct truth_stacks stacks;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct truth_scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct truth_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} differences SEC(".maps");

/* How two stacks of an event compare. */
enum truth_verdict {
	TRUTH_DIFFERENT = 0,
	TRUTH_EQUAL = 1,
	/*
	 * But for generated code (BPF programs and trampolines) that the kernel does not list: the helper leaves its
	 * addresses out, or ends there.
	 */
	TRUTH_UNLISTED = 2,
};

/* Whether an address is in generated code. */
static __always_inline _Bool truth_generated(__u64 ip)
{
	return unwind_rule_at(ip) == unwind_generated_rule();
}

struct truth_comparison {
	struct truth_stacks *stacks;
	__u32 there; /* in the helper's stack */
	__u32 verdict;
};

/* Compares an address of the walk with the next of the helper. Returns whether that decides it. */
static long truth_compare_one(__u32 here, struct truth_comparison *so_far)
{
	struct truth_stacks *stacks = so_far->stacks;
	__u32 there = so_far->there;
	__u64 ip;

	/* The helper's own frames count towards its depth: the walk has seen more. */
	if (here >= stacks->walked.depth || there >= TRUTH_DEPTH)
		return 1;
	ip = stacks->walked.ip[here & (UNWIND_DEPTH - 1)];
	if (there < stacks->helper_depth && stacks->helper[there & (UNWIND_DEPTH - 1)] == ip) {
		so_far->there++;
		return 0;
	}
	if (truth_generated(ip)) {
		so_far->verdict = TRUTH_UNLISTED;
		return 0;
	}
	/* Where the helper ended at such code, the walk may go on. */
	if (so_far->verdict != TRUTH_UNLISTED || there != stacks->helper_depth)
		so_far->verdict = TRUTH_DIFFERENT;
	return 1;
}

/* Compares them from where the walk begins. */
static __always_inline int truth_compare(struct truth_stacks *stacks)
{
	struct truth_comparison comparison = { .stacks = stacks, .verdict = TRUTH_EQUAL };

	if (!stacks->walked.depth)
		return TRUTH_DIFFERENT;
	for (int i = 0; i < TRUTH_OWN; i++) {
		if (stacks->helper[i] == stacks->walked.ip[0])
			break;
		comparison.there++;
	}
	bpf_loop(UNWIND_DEPTH, truth_compare_one, &comparison, 0);
	if (comparison.there < TRUTH_DEPTH && comparison.there < stacks->helper_depth)
		return TRUTH_DIFFERENT;
	return comparison.verdict;
}

__u32 timed; /* of enum truth_timed */

static __always_inline void take_by_helper(void *ctx, struct truth_stacks *stacks)
{
	long bytes = bpf_get_stack(ctx, stacks->helper, TRUTH_DEPTH * 8, 0);

	stacks->helper_depth = bytes < 0 ? 0 : (__u64)bytes / 8;
}

static __always_inline void compare(struct truth_stacks *stacks, struct truth_counts *count,
				    __u64 ns)
{
	int verdict;

	count->events++;
	count->ns += ns;
	count->frames += stacks->walked.depth;
	if (stacks->walked.depth > count->deepest)
		count->deepest = stacks->walked.depth;
	verdict = truth_compare(stacks);
	if (verdict == TRUTH_EQUAL) {
		count->equal++;
	} else if (verdict == TRUTH_UNLISTED) {
		count->unlisted++;
	} else {
		count->different++;
		if (bpf_ringbuf_output(&differences, stacks, sizeof(*stacks), 0))
			count->unheard++;
	}
}

#define TRUTH(section, name, walk)                                                \
	SEC("?" section)                                                          \
	int name(void *ctx)                                                       \
	{                                                                         \
		__u32 key = 0;                                                    \
		struct truth_scratch *both = bpf_map_lookup_elem(&scratch, &key); \
		struct truth_counts *count = bpf_map_lookup_elem(&counts, &key);  \
		__u32 now_timed = *(volatile __u32 *)&timed;                      \
		__u64 start, end;                                                 \
                                                                                  \
		if (!both || !count)                                              \
			return 0;                                                 \
		if (both->busy) {                                                 \
			count->nested++;                                          \
			return 0;                                                 \
		}                                                                 \
		both->busy = 1;                                                   \
		start = bpf_ktime_get_ns();                                       \
		if (now_timed == TRUTH_HELPER)                                    \
			take_by_helper(ctx, &both->stacks);                       \
		else if (now_timed == TRUTH_WALK)                                 \
			walk;                                                     \
		end = bpf_ktime_get_ns();                                         \
		if (now_timed != TRUTH_HELPER)                                    \
			take_by_helper(ctx, &both->stacks);                       \
		if (now_timed != TRUTH_WALK)                                      \
			walk;                                                     \
		compare(&both->stacks, count, end - start);                       \
		both->busy = 0;                                                   \
		return 0;                                                         \
	}

TRUTH("raw_tp", truth_raw_tp, unwind_frames(unwind_here(), TRUTH_DEPTH, &both->stacks.walked))
TRUTH("tp", truth_tp, unwind_frames(unwind_tracepoint(ctx), TRUTH_DEPTH, &both->stacks.walked))
TRUTH("kprobe", truth_kprobe,
      unwind_frames_regs(((struct pt_regs *)ctx)->rip, ((struct pt_regs *)ctx)->rsp,
			 ((struct pt_regs *)ctx)->rbp, TRUTH_DEPTH, &both->stacks.walked))
TRUTH("fentry", truth_fentry, unwind_frames(unwind_here(), TRUTH_DEPTH, &both->stacks.walked))
