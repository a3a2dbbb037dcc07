// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs with options that are off, as tracing tools have them: what an option needs, user space does not have. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cgroup_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 16);
	__type(value, __u64);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16);
	__type(value, __u64);
} waiting SEC(".maps");

/* Programs can't write it, user space can. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} settings SEC(".maps");

/* The other way round. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

const volatile bool filter_cg = false;
const volatile bool writes_records = false;
const volatile int mode = 1;
const volatile __u32 rounds = 3;
const volatile __u64 step[4] = { 1, 0x100000001ull, 5, 7 };
/* The same option, which a later write could change. */
volatile bool filter_by_data SEC(".data") = false;

/* In one structure, so that their order is known. */
struct {
	__u64 calls, steps, sum;
} all;

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

SEC("uprobe")
int on_filtered(struct pt_regs *ctx)
{
	if (filter_cg && !bpf_current_task_under_cgroup(&cgroup_map, 0))
		return 0;
	__sync_fetch_and_add(&all.calls, 1);
	return 0;
}

SEC("uprobe")
int on_filtered_by_data(struct pt_regs *ctx)
{
	if (filter_by_data && !bpf_current_task_under_cgroup(&cgroup_map, 0))
		return 0;
	__sync_fetch_and_add(&all.calls, 1);
	return 0;
}

static __noinline int write_record(__u64 value)
{
	return bpf_map_push_elem(&records, &value, 0);
}

static long put_waiting(__u32 round, void *value)
{
	return bpf_map_push_elem(&waiting, value, 0) != 0;
}

/* Records by a function, a loop with a callback, kernel functions; and a mode, which is one of several. */
SEC("uprobe")
int on_options(struct pt_regs *ctx)
{
	__u64 value = ctx->rdi;
	bool is_locked = writes_records && mode > 1;

	if (is_locked)
		bpf_rcu_read_lock();
	__sync_fetch_and_add(&all.calls, 1);
	switch (mode) {
	case 1:
		__sync_fetch_and_add(&all.steps, step[1]);
		break;
	case 2:
		bpf_loop(4, put_waiting, &value, 0);
		break;
	default:
		bpf_map_push_elem(&waiting, &value, 0);
	}
	if (is_locked)
		bpf_rcu_read_unlock();
	if (writes_records)
		return write_record(value);
	return 0;
}

SEC("uprobe")
int on_loop(struct pt_regs *ctx)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < rounds && i < 4; i++)
		sum += step[i];
	__sync_fetch_and_add(&all.sum, sum);
	for (__u32 i = 0; i < rounds - 3; i++)
		bpf_map_push_elem(&waiting, &sum, 0);
	return 0;
}
