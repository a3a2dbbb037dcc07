// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tally: what is attached to a function that many threads call at once, to count the calls.
 *
 * In the number: the mechanism that calls the program, one question for the process, and one addition
 * on a cache line of this CPU's own, so that what scales badly is the mechanism and not the count.
 * Not in the number: the call itself, which the same threads make without a program.
 *
 * The kernel runs a program never inside itself on one CPU: a call that would be is passed over, and
 * counted with the program's recursion misses. So the additions need not be atomic.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

struct tally_count {
	__u64 hits; /* calls of the process that is asked about */
	__u64 strangers; /* those of others */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally_count);
} counts SEC(".maps");

__u64 caller; /* the process, as the kernel numbers it: a namespace has numbers of its own */

static __always_inline __u64 process(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline int count_call(void)
{
	__u32 key = 0;
	struct tally_count *count = bpf_map_lookup_elem(&counts, &key);

	if (!count)
		return 0;
	if (process() == caller)
		count->hits++;
	else
		count->strangers++;
	return 0;
}

/* Run by the process itself. */
SEC("syscall")
int tally_caller(void *ctx)
{
	caller = process();
	return 0;
}

SEC("?kprobe")
int tally_kprobe(struct pt_regs *ctx)
{
	return count_call();
}

SEC("?kprobe.multi")
int tally_multi(struct pt_regs *ctx)
{
	return count_call();
}

SEC("?fexit")
int tally_tracing(unsigned long long *ctx)
{
	return count_call();
}
