// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs that have no form in user space. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} events SEC(".maps");

SEC("uprobe/" TARGET ":work")
int by_perf(void *context)
{
	__u64 event = 7;

	bpf_perf_event_output(context, &events, BPF_F_CURRENT_CPU, &event, sizeof(event));
	return 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int in_kernel(void *context)
{
	return 0;
}
