// SPDX-License-Identifier: MIT OR Apache-2.0
/* A record of each call of `work`, wherever the target executes it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} records SEC(".maps");

SEC("uprobe/" TARGET ":work")
int on_work(void *context)
{
	__u64 process = bpf_get_current_pid_tgid() >> 32;

	bpf_ringbuf_output(&records, &process, sizeof(process), 0);
	return 0;
}
