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
} begun SEC(".maps"); /* when a thread entered the call that it is in */

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
__u32 picked[SYSCOUNT_PROCESSES]; /* the processes that are asked about */
__u32 picked_count;

static __always_inline struct syscount_runs *own_runs(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&runs, &key);
}

/* Whether the calls of a process are none of this program's business. */
static __always_inline int is_left_out(__u32 process)
{
	if (filter != SYSCOUNT_KERNEL)
		return 0;
	for (int i = 0; i < SYSCOUNT_PROCESSES; i++) {
		if (i >= picked_count)
			break;
		if (picked[i] == process)
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

static __always_inline int tell(const struct syscount_key *key, __u64 ns)
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
	struct syscount_runs *own = own_runs();
	__u64 who = bpf_get_current_pid_tgid(), now;
	__u32 thread = who;

	if (!own)
		return 0;
	own->entered++;
	if (is_left_out(who >> 32))
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&begun, &thread, &now, BPF_ANY))
		own->lost++;
	return 0;
}

SEC("tp")
int on_exit(struct sys_exit *ctx)
{
	struct syscount_runs *own = own_runs();
	__u64 who = bpf_get_current_pid_tgid(), *since, ns;
	struct syscount_key key = { .process = who >> 32, .number = ctx->number };
	__u32 thread = who;

	if (!own)
		return 0;
	own->left++;
	if (is_left_out(key.process))
		return 0;
	since = bpf_map_lookup_elem(&begun, &thread);
	if (!since)
		return 0; /* entered before this was attached */
	ns = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&begun, &thread);
	if (filter == SYSCOUNT_USER ? tell(&key, ns) : add(&key, ns))
		own->lost++;
	return 0;
}
