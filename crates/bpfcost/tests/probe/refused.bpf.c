// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs that have no form in user space. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16);
	__uint(value_size, 8);
} events SEC(".maps");

SEC("uprobe/" TARGET ":work")
int by_queue(void *context)
{
	__u64 event = 7;

	bpf_map_push_elem(&events, &event, BPF_ANY);
	return 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int in_kernel(void *context)
{
	return 0;
}
