/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Batch timing: how long a piece of BPF takes, measured in isolation.
 *
 * A batch is N runs of a body between two clock reads, with a reset step between runs that undoes
 * what the body did (N bodies, N - 1 resets), so that the result of the last timed body can be
 * checked:
 *
 *	start = clock
 *	body; { reset; body } x (N - 1)
 *	end = clock
 *
 * In the number: bodies, resets, the loop, the call of the body where it is a separate function,
 * and 1/N of a clock read. Not in it: the system call, the entry of the program, and the wait for
 * other CPUs. The cost of the loop and the reset is measured by timing an empty body with the same
 * reset (a floor), and that of the reset in its context by resetting twice (timing_resets = 2).
 *
 * With can_loop, a batch on one CPU can be cut into slices of timing_slice bodies: the clock is read
 * once more between two of them, and timing_edges stores the readings. What such a read costs is measured
 * after the batch, so that it can be subtracted.
 *
 * Use:
 *	static __always_inline int body(struct xdp_md *ctx) { ... return code; }
 *	static __always_inline void reset(struct xdp_md *ctx) { ... }
 *	TIMED_PROGRAM("xdp", my_bench, struct xdp_md, body, reset)
 *
 * This defines two programs that are loaded on request only: my_bench loops with
 * can_loop (Linux 6.9 and later, 0.8 ns an iteration), my_bench__bpf_loop with
 * bpf_loop() (5.17 and later, 7 to 9 ns). Load the one that the kernel has. User space
 * sets timing_ops and timing_resets, runs the program on a CPU through
 * BPF_PROG_TEST_RUN with repeat 1 (a higher repeat makes the kernel rebuild the XDP
 * dispatcher twice, some 16 ms each) and reads timing_samples[cpu]. The program
 * returns what the last body returned.
 */
#ifndef TIMING_BPF_H
#define TIMING_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* CPUs that can be timed; CPU numbers beyond report no sample. A power of two. */
#define TIMING_MAX_CPUS 1024

/*
 * Turns of the loop that waits for the other CPUs: some 4 to 30 ms. Half of what
 * can_loop grants a program on kernels before 6.15, so that the batch has the rest.
 */
#define TIMING_WAIT_TURNS (1 << 22)

/* Slices that a batch can be cut into. */
#define TIMING_MAX_SLICES 512

/* Clock reads after a batch; the fastest is the cost of one. */
#define TIMING_CLOCK_READS 4

/* Tries to leave the wait; a try fails only when another CPU comes or goes meanwhile. */
#define TIMING_EXCHANGES 64

/* What one batch on one CPU saw. Aligned so that CPUs share no cache line, nor a pair. */
struct timing_sample {
	__u64 start_ns; /* clock before the first body */
	__u64 end_ns; /* clock after the last body */
	__u64 ops; /* bodies that ran */
	__u64 cpu_counter; /* 1: read from the CPU time counter; 0: from bpf_ktime_get_ns */
	__u64 together; /* 1: all CPUs were there; 0: they were not, and nothing ran */
	__u64 ticks; /* timer ticks of the machine from just before the batch to just after it */
	__u64 edges; /* clock reads between slices */
	__u64 clock_ns; /* the cost of such a read; 0 if there was none */
	__u64 spare[8];
} __attribute__((aligned(128)));

/* All of it lives in .bss: the verifier must not know the counts, or it walks them. */
__u64 timing_ops; /* bodies per batch, at least 1 */
__u64 timing_resets; /* how often the reset is done between bodies: 1 or 2 */
__u64 timing_slice; /* bodies per slice; 0: the batch is not cut */
__u64 timing_cpus; /* CPUs that start together; 0 and 1 don't wait */
__u64 timing_arrived; /* CPUs that wait; user space sets it to 0 before a batch */
__u64 timing_next; /* the end of the slice under way, in bodies; the same on all CPUs of a batch */
__u64 timing_zero; /* always 0, unknown to the verifier */
struct timing_sample timing_samples[TIMING_MAX_CPUS];
__u64 timing_edges[TIMING_MAX_SLICES]; /* clock at the end of each slice but the last, in ns */

/*
 * CPU time counter kfuncs, where the kernel has them (Debian's 7.2 does not): one
 * instruction, without the call.
 */
extern __u64 bpf_get_cpu_time_counter(void) __ksym __weak;
extern __u64 bpf_cpu_time_counter_to_ns(__u64 counter) __ksym __weak;

static __always_inline _Bool timing_counter(void)
{
	return bpf_ksym_exists(bpf_get_cpu_time_counter) &&
	       bpf_ksym_exists(bpf_cpu_time_counter_to_ns);
}

static __always_inline __u64 timing_clock(void)
{
	if (timing_counter())
		return bpf_get_cpu_time_counter();
	return bpf_ktime_get_ns();
}

static __always_inline __u64 timing_nanos(__u64 clock)
{
	if (timing_counter())
		return bpf_cpu_time_counter_to_ns(clock);
	return clock;
}

/* can_loop of the kernel's bpf_experimental.h: the verifier bounds the loop at run time. */
static __always_inline _Bool timing_can_loop(void)
{
	asm goto("may_goto %l[stop]" : : : : stop);
	return 1;
stop:
	return 0;
}

static __always_inline struct timing_sample *timing_sample(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return cpu < TIMING_MAX_CPUS ? &timing_samples[cpu] : 0;
}

static __always_inline _Bool timing_alone(void)
{
	return *(volatile __u64 *)&timing_cpus <= 1;
}

static __always_inline void timing_arrive(void)
{
	__sync_fetch_and_add(&timing_arrived, 1);
}

static __always_inline _Bool timing_complete(void)
{
	return *(volatile __u64 *)&timing_arrived >= *(volatile __u64 *)&timing_cpus;
}

static long timing_wait_step(__u32 turn, void *unused)
{
	return timing_complete();
}

/*
 * After the wait: whether to start. A CPU that leaves takes its arrival back, so that no
 * other starts on it, and does so only while one is missing: once all were there the count
 * never falls, so either all CPUs start or none does. Each failed exchange means that
 * another CPU came or went; after so many as there can be, the last look decides.
 */
static __always_inline _Bool timing_together(void)
{
	for (int i = 0; i < TIMING_EXCHANGES; i++) {
		__u64 arrived = *(volatile __u64 *)&timing_arrived;

		if (arrived >= *(volatile __u64 *)&timing_cpus)
			return 1;
		if (__sync_val_compare_and_swap(&timing_arrived, arrived, arrived - 1) == arrived)
			return 0;
	}
	return timing_complete();
}

/*
 * Where one CPU has the machine to itself and a clock that counts instructions, a batch
 * without a tick in it was not interrupted, and counts nothing but itself.
 */
static __always_inline __u64 timing_tick(void)
{
	return bpf_jiffies64();
}

/*
 * Where the slice ends that begins behind `done` bodies. It passes through memory, so that the
 * verifier knows nothing of it: what it knows of a loop's bounds, it would have to follow.
 */
static __always_inline __u64 timing_slice_end(__u64 done)
{
	__u64 ops = *(volatile __u64 *)&timing_ops, slice = *(volatile __u64 *)&timing_slice;

	*(volatile __u64 *)&timing_next = slice && slice < ops - done ? done + slice : ops;
	return *(volatile __u64 *)&timing_next;
}

static __always_inline _Bool timing_done(__u64 done)
{
	return done >= *(volatile __u64 *)&timing_ops;
}

/* Between two slices. User space asks for no more than there is room for. */
static __always_inline void timing_edge(struct timing_sample *sample)
{
	__u64 edge = sample->edges++;

	if (edge < TIMING_MAX_SLICES)
		timing_edges[edge] = timing_nanos(timing_clock());
}

/* The cost of a clock read that follows another: the least of a few. */
static __always_inline __u64 timing_clock_cost(void)
{
	__u64 before = timing_nanos(timing_clock()), least = ~0ULL;

	for (int i = 0; i < TIMING_CLOCK_READS; i++) {
		__u64 now = timing_nanos(timing_clock());

		if (now - before < least)
			least = now - before;
		before = now;
	}
	return least;
}

/*
 * What a batch needs at its end lies in its sample, not on the stack: from 64 bytes of it on, a
 * kernel gives a program a stack of its own, and no walk of the kernel's stack begins there.
 */
static __always_inline void timing_begin(struct timing_sample *sample)
{
	sample->edges = 0;
	sample->ticks = timing_tick();
	sample->start_ns = timing_clock();
}

static __always_inline void timing_finish(struct timing_sample *sample, __u64 ops)
{
	__u64 end = timing_clock();

	sample->ticks = timing_tick() - sample->ticks;
	sample->start_ns = timing_nanos(sample->start_ns);
	sample->end_ns = timing_nanos(end);
	sample->clock_ns = sample->edges ? timing_clock_cost() : 0;
	sample->cpu_counter = timing_counter();
	sample->together = 1;
	sample->ops = ops;
}

/* Waits for the other CPUs of the batch, where there are some; whether to start. */
static __always_inline _Bool timing_wait_can_loop(void)
{
	__u64 turn = timing_zero;

	if (timing_alone())
		return 1;
	timing_arrive();
	for (; turn < TIMING_WAIT_TURNS && timing_can_loop(); turn++)
		if (timing_complete())
			break;
	return timing_together();
}

static __always_inline _Bool timing_wait_bpf_loop(void)
{
	if (timing_alone())
		return 1;
	timing_arrive();
	bpf_loop(TIMING_WAIT_TURNS, timing_wait_step, 0, 0);
	return timing_together();
}

typedef int (*timing_body)(void *ctx);
typedef void (*timing_reset)(void *ctx);

/* Inlined, with body and reset, into each program. */
static __always_inline int timing_can_loop_batch(void *ctx, timing_body body, timing_reset reset)
{
	struct timing_sample *sample = timing_sample();
	__u64 twice = timing_resets > 1, done = timing_zero;
	int code;

	if (!sample || !timing_wait_can_loop())
		return -1;
	timing_begin(sample);
	code = body(ctx);
	done++;
	while (!timing_done(done) && timing_can_loop()) {
		__u64 end = timing_slice_end(done);

		for (; done < end && timing_can_loop(); done++) {
			reset(ctx);
			if (twice)
				reset(ctx);
			code = body(ctx);
		}
		if (done == end && !timing_done(done))
			timing_edge(sample);
	}
	timing_finish(sample, done);
	return code;
}

struct timing_turn {
	void *ctx;
	__u64 done, twice;
	int code;
};

static __always_inline long timing_step(struct timing_turn *turn, timing_body body,
					timing_reset reset)
{
	reset(turn->ctx);
	if (turn->twice)
		reset(turn->ctx);
	turn->code = body(turn->ctx);
	turn->done++;
	return 0;
}

/* In one piece: Linux 6.1 miscounts a loop in the callback of another. */
static __always_inline int timing_bpf_loop_batch(void *ctx, timing_body body,
						 long (*step)(__u32, void *))
{
	struct timing_sample *sample = timing_sample();
	struct timing_turn turn = { .ctx = ctx, .twice = timing_resets > 1 };
	__u64 ops = timing_ops;

	if (!sample || !timing_wait_bpf_loop())
		return -1;
	timing_begin(sample);
	turn.code = body(ctx);
	turn.done = 1;
	if (ops > 1)
		bpf_loop(ops - 1, step, &turn, 0);
	timing_finish(sample, turn.done);
	return turn.code;
}

static __always_inline void timing_unprepared(void *ctx)
{
}

static __always_inline int timing_as_it_is(void *ctx, int code)
{
	return code;
}

#define TIMED_PROGRAM(section, name, ctx_t, body, reset) \
	PREPARED_PROGRAM(section, name, ctx_t, timing_unprepared, body, reset)

/* Does something to the context before the batch, untimed. */
#define PREPARED_PROGRAM(section, name, ctx_t, prepare, body, reset) \
	ENCLOSED_PROGRAM(section, name, ctx_t, prepare, timing_as_it_is, body, reset)

/* And after it: `conclude` gets the last code, and returns that of the program. */
#define ENCLOSED_PROGRAM(section, name, ctx_t, prepare, conclude, body, reset)                 \
	static __always_inline int name##__body(void *ctx)                                     \
	{                                                                                      \
		return body((ctx_t *)ctx);                                                     \
	}                                                                                      \
                                                                                               \
	static __always_inline void name##__reset(void *ctx)                                   \
	{                                                                                      \
		reset((ctx_t *)ctx);                                                           \
	}                                                                                      \
                                                                                               \
	static long name##__step(__u32 index, void *turn)                                      \
	{                                                                                      \
		return timing_step(turn, name##__body, name##__reset);                         \
	}                                                                                      \
                                                                                               \
	SEC("?" section)                                                                       \
	int name(ctx_t *ctx)                                                                   \
	{                                                                                      \
		prepare(ctx);                                                                  \
		return conclude(ctx, timing_can_loop_batch(ctx, name##__body, name##__reset)); \
	}                                                                                      \
                                                                                               \
	SEC("?" section)                                                                       \
	int name##__bpf_loop(ctx_t *ctx)                                                       \
	{                                                                                      \
		prepare(ctx);                                                                  \
		return conclude(ctx, timing_bpf_loop_batch(ctx, name##__body, name##__step));  \
	}

#endif
