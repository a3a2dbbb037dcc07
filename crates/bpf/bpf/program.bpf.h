/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Drivers that time a person's own program, which takes the place of program_target: user space
 * puts its instructions there before it loads a driver.
 *
 * In the number: the program, its call, the comparison of the code that it returns, the addition that
 * counts it, what undoes it (program_restore), and what timing.bpf.h names. The floor is the same driver with a program that
 * returns the same code and does nothing else. Not in the number: what the kernel does before and
 * after the program where it is attached.
 */
#ifndef PROGRAM_BPF_H
#define PROGRAM_BPF_H

#include "timing.bpf.h"

/* Room for packets, a power of two: all are shorter. A jumbo frame has 9,014 bytes. */
#define PROGRAM_PACKET_BYTES 16384
/* The shortest one: an Ethernet header. */
#define PROGRAM_LEAST_BYTES  14
/* Bytes that RESTORE_FRONT writes. */
#define PROGRAM_FRONT_BYTES  64
#define PROGRAM_STATE_WORDS  12

/* What is undone after each run, the larger including the smaller. */
enum program_restore_class {
	RESTORE_NONE,
	RESTORE_STATE, /* head, tail and metadata of a frame; fields of an skb */
	RESTORE_FRONT, /* and the first bytes, by stores */
	RESTORE_ALL, /* and all bytes, by a helper */
};

/* What of a context a run may change, but for the bytes. */
struct program_state {
	__u64 words[PROGRAM_STATE_WORDS];
};

/* The verifier knows it, and leaves out the rest. */
const volatile __u32 program_restore;
/* Whether it has lengths to undo: a reset that is done twice undoes half of each the first time. */
const volatile __u32 program_halves;

/* Packets that take turns; 0: all runs get the same one. */
const volatile __u32 program_turns;

/* A packet that takes turns with others. */
struct program_input {
	__u32 length;
	__u32 code; /* what a run of it must return */
	__u8 bytes[PROGRAM_PACKET_BYTES];
};

/* As many as take turns; made where some do. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program_input);
} program_inputs SEC(".maps");

__u64 program_turn; /* the packet of the run under way */
__u64 program_rounds; /* how often it was the first one's turn again */
__u64 program_code; /* what the run under way must return: each, where none take turns */
__u64 program_runs; /* of the program, or of what the floor has in its place: those that returned */
__u64 program_wrong; /* of these, how many returned something else */
__u64 program_wrong_code; /* what the last of them returned */
__u64 program_wrong_turn; /* and its packet */
__u64 program_resets; /* in a batch that does each twice */
__u64 program_length; /* of the packet below */
__u8 program_packet[PROGRAM_PACKET_BYTES] __attribute__((aligned(8)));
struct program_state program_start; /* before the batch */
struct program_state program_now; /* between two runs */
struct program_state program_left; /* after the batch */

/* Counts a run, by one addition, and compares its code, which differs from the expected one in a faulty run alone. */
static __always_inline int program_check(__u32 code)
{
	program_runs++;
	if (code != (__u32)program_code) {
		program_wrong++;
		program_wrong_code = code;
		program_wrong_turn = program_turn;
	}
	/* All types may return it. */
	return 1;
}

/* The place that a person's program takes. Clang must assume that it changes everything. */
#define PROGRAM_TARGET(argument)                                     \
	__noinline int program_target(argument)                      \
	{                                                            \
		int code = 0;                                        \
                                                                     \
		asm volatile("" : "+r"(code) : "r"(ctx) : "memory"); \
		return code;                                         \
	}

/*
 * Whether a reset undoes half. Done twice, the second one would find nothing to undo otherwise, and add
 * less than the first one costs. Helpers cost the same for half the way.
 */
static __always_inline _Bool program_half(void)
{
	if (!program_halves || *(volatile __u64 *)&timing_resets < 2)
		return 0;
	return ++program_resets & 1;
}

/* Whether a reset is the only one between two runs, or the first of two: it undoes `half` then. */
static __always_inline _Bool program_is_first(_Bool half)
{
	return half || *(volatile __u64 *)&timing_resets < 2;
}

/* The packet of the next run. A second reset has that of the first. */
static __always_inline struct program_input *program_next(_Bool half)
{
	__u32 turn = *(volatile __u64 *)&program_turn;
	struct program_input *next;

	if (program_is_first(half)) {
		turn = turn + 1 < program_turns ? turn + 1 : 0;
		if (!turn)
			program_rounds++;
	}
	program_turn = turn;
	next = bpf_map_lookup_elem(&program_inputs, &turn);
	if (next) {
		program_code = next->code;
		program_length = next->length;
	}
	return next;
}

/*
 * The two loops of timing.bpf.h around the target. `see` stores the state of a context. The code of the driver is one that
 * all types may return.
 */
#define PROGRAM_LOOPS(section, name, ctx_t, see, restore)                               \
	static __always_inline void name##__start(ctx_t *ctx)                           \
	{                                                                               \
		see(ctx, &program_start);                                               \
	}                                                                               \
                                                                                        \
	static __always_inline int name##__end(ctx_t *ctx, int code)                    \
	{                                                                               \
		see(ctx, &program_left);                                                \
		return 1;                                                               \
	}                                                                               \
                                                                                        \
	static __always_inline int name##__run(ctx_t *ctx)                              \
	{                                                                               \
		return program_check(program_target(ctx));                              \
	}                                                                               \
                                                                                        \
	static __always_inline void name##__undo(ctx_t *ctx)                            \
	{                                                                               \
		if (program_restore != RESTORE_NONE)                                    \
			restore(ctx);                                                   \
	}                                                                               \
                                                                                        \
	ENCLOSED_PROGRAM(section, name, ctx_t, name##__start, name##__end, name##__run, \
			 name##__undo)

/* And in windows. */
#define PROGRAM_DRIVER(section, name, ctx_t, see, restore) \
	PROGRAM_LOOPS(section, name, ctx_t, see, restore)  \
	PROGRAM_WINDOWS(section, name, ctx_t)

/*
 * Windows are the other way into a loop, for programs that make tail calls themselves, or leave the loop
 * no stack: a function of the driver makes a tail call to the program, which the kernel has loaded as it
 * is, and which returns to the driver. A run of a driver has 33 tail calls, so that each is a window of a
 * few runs; user space adds up the times of many.
 */
#define PROGRAM_WINDOW 32
/* More tail calls than there are. */
#define PROGRAM_PROBES 34

enum program_slot {
	SLOT_PROGRAM,
	SLOT_RETURN, /* a program that does nothing else */
	PROGRAM_SLOTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAM_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} program_slots SEC(".maps");

__u64 program_fallen; /* tail calls that the kernel did not make */
__u64 program_probes; /* tail calls that are tried behind a window */
__u64 program_spare; /* of those, how many it made before one that it did not */

/* Behind a tail call that was not made. What it returns, the verifier must not know: for it, all return that. */
static __always_inline int program_fall(void)
{
	*(volatile __u64 *)&program_fallen += 1;
	return *(volatile __u64 *)&program_fallen;
}

/* User space asks for no CPU beyond those that there are samples for; some verifiers need the mask. */
static __always_inline struct timing_sample *program_sample(void)
{
	return &timing_samples[bpf_get_smp_processor_id() & (TIMING_MAX_CPUS - 1)];
}

/*
 * If one more tail call is made behind the window, all before it were: the kernel counts them together. A
 * kernel that does not (before Linux 6.11) refuses none of a window.
 */
#define PROGRAM_WINDOWS(section, name, ctx_t)                                         \
	static __noinline int name##__jump(ctx_t *ctx)                                \
	{                                                                             \
		bpf_tail_call(ctx, &program_slots, SLOT_PROGRAM);                     \
		return program_fall();                                                \
	}                                                                             \
                                                                                      \
	static __noinline int name##__try(ctx_t * ctx)                                \
	{                                                                             \
		bpf_tail_call(ctx, &program_slots, SLOT_RETURN);                      \
		return program_fall();                                                \
	}                                                                             \
                                                                                      \
	SEC("?" section)                                                              \
	int name##__windows(ctx_t *ctx)                                               \
	{                                                                             \
		struct timing_sample *sample = program_sample();                      \
		__u64 twice = timing_resets > 1, done, fallen;                        \
                                                                                      \
		name##__start(ctx);                                                   \
		timing_begin(sample);                                                 \
		program_check(name##__jump(ctx));                                     \
		for (done = 1; done < PROGRAM_WINDOW && !timing_done(done); done++) { \
			name##__undo(ctx);                                            \
			if (twice)                                                    \
				name##__undo(ctx);                                    \
			program_check(name##__jump(ctx));                             \
		}                                                                     \
		timing_finish(sample, done);                                          \
		name##__end(ctx, 0);                                                  \
		program_spare = 0;                                                    \
		fallen = *(volatile __u64 *)&program_fallen;                          \
		for (int i = 0; i < PROGRAM_PROBES; i++) {                            \
			if (i >= *(volatile __u64 *)&program_probes)                  \
				break;                                                \
			name##__try(ctx);                                             \
			if (*(volatile __u64 *)&program_fallen != fallen)             \
				break;                                                \
			program_spare++;                                              \
		}                                                                     \
		return 1;                                                             \
	}

/*
 * The length of the packet, for helpers that copy it, once it is not below PROGRAM_LEAST_BYTES: they
 * take no 0. The barrier keeps clang from comparing a copy.
 */
static __always_inline __u64 program_bytes(void)
{
	__u64 length = *(volatile __u64 *)&program_length & (PROGRAM_PACKET_BYTES - 1);

	barrier_var(length);
	return length;
}

#endif
