// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * syscount: how many system calls of each kind, and how long they took. Study 004 had one, after that of
 * libbpf-tools: two programs on the tracepoints by which the calls of all processes come, a hash map
 * for when each call began, another one for sums. That is the point: asking about one process makes all
 * the others pay.
 *
 * In the number: all that such a tool does in the kernel, and one addition to a counter of this CPU's own
 * in each run, by which a window proves that the programs ran. What user space does with events is in
 * its own CPU time.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "syscount.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* As tracefs's events/raw_syscalls/sys_{enter,exit}/format have them. */
struct sys_enter {
	__u64 common;
	long number;
};

struct sys_exit {
	__u64 common;
	long number;
	long result;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SYSCOUNT_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} start SEC(".maps"); /* when a thread entered the call that it is in */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SYSCOUNT_SUMS);
	__type(key, struct syscount_key);
	__type(value, struct syscount_sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SYSCOUNT_RING_BYTES);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syscount_runs);
} runs SEC(".maps");

const volatile __u32 filter; /* of enum syscount_filter */
__u32 filter_pids[SYSCOUNT_PROCESSES]; /* the processes that are asked about */
__u32 filter_count;

static __always_inline struct syscount_runs *this_cpu_runs(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&runs, &key);
}

/* Whether the calls of a process are none of this program's business. */
static __always_inline int is_filtered_out(__u32 process)
{
	if (filter != SYSCOUNT_KERNEL)
		return 0;
	for (int i = 0; i < SYSCOUNT_PROCESSES; i++) {
		if (i >= filter_count)
			break;
		if (filter_pids[i] == process)
			return 0;
	}
	return 1;
}

static __always_inline int add(const struct syscount_key *key, __u64 ns)
{
	struct syscount_sum *sum = bpf_map_lookup_elem(&sums, key), none = {};

	if (!sum) {
		bpf_map_update_elem(&sums, key, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&sums, key);
	}
	if (!sum)
		return -1;
	__sync_fetch_and_add(&sum->calls, 1);
	__sync_fetch_and_add(&sum->ns, ns);
	return 0;
}

static __always_inline int emit_event(const struct syscount_key *key, __u64 ns)
{
	struct syscount_call *call = bpf_ringbuf_reserve(&calls, sizeof(*call), 0);

	if (!call)
		return -1;
	call->process = key->process;
	call->number = key->number;
	call->ns = ns;
	bpf_ringbuf_submit(call, 0);
	return 0;
}

SEC("tp")
int on_enter(struct sys_enter *ctx)
{
	struct syscount_runs *cpu_runs = this_cpu_runs();
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now;
	__u32 thread = pid_tgid;

	if (!cpu_runs)
		return 0;
	cpu_runs->entered++;
	if (is_filtered_out(pid_tgid >> 32))
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&start, &thread, &now, BPF_ANY))
		cpu_runs->lost++;
	return 0;
}

SEC("tp")
int on_exit(struct sys_exit *ctx)
{
	struct syscount_runs *cpu_runs = this_cpu_runs();
	__u64 pid_tgid = bpf_get_current_pid_tgid(), *since, ns;
	struct syscount_key key = { .process = pid_tgid >> 32, .number = ctx->number };
	__u32 thread = pid_tgid;

	if (!cpu_runs)
		return 0;
	cpu_runs->left++;
	if (is_filtered_out(key.process))
		return 0;
	since = bpf_map_lookup_elem(&start, &thread);
	if (!since)
		return 0; /* entered before this was attached */
	ns = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&start, &thread);
	if (filter == SYSCOUNT_USER ? emit_event(&key, ns) : add(&key, ns))
		cpu_runs->lost++;
	return 0;
}
