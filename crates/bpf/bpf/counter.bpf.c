// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * counter: what is attached to an event of a running system, on all CPUs at once, or to a function that
 * many threads call at once. Study 003 had the works `null` and `map`.
 *
 * In the number: the mechanism that calls the program, one addition on a cache line of this CPU,
 * by which a window proves that the program ran, and the work. The verifier knows which work it is
 * when it loads the program, and removes the others and the branch.
 *
 * A busy program reads the clock in every iteration, and adds up the time from the first reading
 * to the last. So a window knows the cost that was added, in the caches and on the CPU of the
 * event, independently of the measurement that must find it again.
 *
 * The kernel never runs a program inside itself on one CPU: an event that would do so is skipped,
 * and counted with the program's recursion misses. So the additions need not be atomic.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

#include "counter.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct counter_counts {
	__u64 hits; /* runs; of the caller, where it is asked about */
	__u64 other_hits; /* runs for other processes than the caller */
	__u64 busy_ns; /* in spells */
};

/* Turns in which a spell reads the clock at most: 10 ms and more. */
#define SPELL_TURNS (1 << 19)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counter_counts);
} counts SEC(".maps"); /* of each CPU */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_pid SEC(".maps"); /* who was last, on each CPU */

const volatile __u32 work; /* of enum counter_work */
__u64 spell_ns; /* from the first reading of the clock to the last one */
__u64 spells_ns; /* what COUNTER_SPELLS of them took when they were timed */
__u64 caller; /* the process, in the kernel's numbering: namespaces number differently */

static __always_inline __u64 process(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void write_pid(void)
{
	__u32 key = 0;
	__u64 *last = bpf_map_lookup_elem(&last_pid, &key);

	if (last)
		*last = process();
}

struct spell {
	__u64 start_ns; /* first reading of the clock */
	__u64 now_ns; /* last one */
};

static int busy_wait_step(__u32 turn, struct spell *spell)
{
	spell->now_ns = bpf_ktime_get_ns();
	return spell->now_ns - spell->start_ns >= spell_ns;
}

static __always_inline void busy_wait(void)
{
	struct spell spell = { .start_ns = bpf_ktime_get_ns() };
	__u32 key = 0;
	struct counter_counts *count;

	bpf_loop(SPELL_TURNS, busy_wait_step, &spell, 0);
	count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		count->busy_ns += spell.now_ns - spell.start_ns;
}

static __always_inline int run(void)
{
	__u32 key = 0;
	struct counter_counts *count = bpf_map_lookup_elem(&counts, &key);

	if (!count)
		return 0;
	if (work == COUNTER_CALLS && process() != caller) {
		count->other_hits++;
		return 0;
	}
	count->hits++;
	if (work == COUNTER_MAP)
		write_pid();
	else if (work == COUNTER_BUSY)
		busy_wait();
	return 0;
}

static int spell(__u32 turn, void *nothing)
{
	busy_wait();
	return 0;
}

/* What a spell takes in all, so that user space can make it as long as it was asked for. */
SEC("?syscall")
int time_spells(void *ctx)
{
	__u64 start_ns = bpf_ktime_get_ns();

	bpf_loop(COUNTER_SPELLS, spell, NULL, 0);
	spells_ns = bpf_ktime_get_ns() - start_ns;
	return 0;
}

/* Run by the process whose calls are asked about. */
SEC("?syscall")
int note_caller(void *ctx)
{
	caller = process();
	return 0;
}

SEC("?tp")
int on_tracepoint(void *ctx)
{
	return run();
}

SEC("?raw_tp")
int on_raw_tp(void *ctx)
{
	return run();
}

SEC("?tp_btf")
int on_tp_btf(unsigned long long *ctx)
{
	return run();
}

SEC("?kprobe")
int on_kprobe(struct pt_regs *ctx)
{
	return run();
}

SEC("?kprobe.multi")
int on_kprobe_multi(struct pt_regs *ctx)
{
	return run();
}

SEC("?fentry")
int on_fentry(unsigned long long *ctx)
{
	return run();
}

SEC("?fexit")
int on_fexit(unsigned long long *ctx)
{
	return run();
}
