// SPDX-License-Identifier: MIT OR Apache-2.0
/* What hits.rs times: one thing each that programs at functions do. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} ring SEC(".maps");

__u64 total;

SEC("uprobe")
int empty(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int empty_twice(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int empty_pair(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int on_array(struct pt_regs *ctx)
{
	__u32 key = 1;
	__u64 *value = bpf_map_lookup_elem(&array, &key);

	if (value)
		*value += 1;
	return 0;
}

SEC("uprobe")
int on_atomic(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&total, 1);
	return 0;
}

SEC("uprobe")
int on_per_cpu(struct pt_regs *ctx)
{
	__u32 key = 1;
	__u64 *value = bpf_map_lookup_elem(&per_cpu, &key);

	if (value)
		*value += 1;
	return 0;
}

SEC("uprobe")
int on_hash(struct pt_regs *ctx)
{
	__u64 key = 7, one = 1;
	__u64 *value = bpf_map_lookup_elem(&hash, &key);

	if (value)
		*value += 1;
	else
		bpf_map_update_elem(&hash, &key, &one, BPF_ANY);
	return 0;
}

/* The ring holds all records of a round: the reader comes after it. */
SEC("uprobe")
int on_ring(struct pt_regs *ctx)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 32, 0);

	if (!record)
		return 0;
	record[0] = record[1] = record[2] = record[3] = 1;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("uprobe")
int on_stack(struct pt_regs *ctx)
{
	__u64 into[2];

	bpf_probe_read_user(into, sizeof(into), (void *)PT_REGS_SP(ctx));
	return 0;
}

SEC("uprobe")
int on_read(struct pt_regs *ctx)
{
	__u64 into[2];

	bpf_probe_read_user(into, sizeof(into), (void *)PT_REGS_IP(ctx));
	return 0;
}

SEC("uprobe")
int on_thread(struct pt_regs *ctx)
{
	total = bpf_get_current_pid_tgid();
	return 0;
}

SEC("uprobe")
int on_clock(struct pt_regs *ctx)
{
	total = bpf_ktime_get_ns();
	return 0;
}
