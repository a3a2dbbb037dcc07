// SPDX-License-Identifier: MIT OR Apache-2.0
/* Compares what the helper says of the thread with what the thread says of itself, and counts calls in a table. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

/* Calls, calls with another thread's number, and updates that failed. */
__u64 calls, others, failed;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

SEC("uprobe")
int on_handle(struct pt_regs *context)
{
	__sync_fetch_and_add(&calls, 1);
	if (bpf_get_current_pid_tgid() != PT_REGS_PARM1(context))
		__sync_fetch_and_add(&others, 1);
	return 0;
}

SEC("uprobe")
int on_update(struct pt_regs *context)
{
	__u64 value = 1;
	__u32 key = 7;

	__sync_fetch_and_add(&calls, 1);
	if (bpf_map_update_elem(&table, &key, &value, BPF_ANY))
		__sync_fetch_and_add(&failed, 1);
	return 0;
}
