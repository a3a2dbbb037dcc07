// SPDX-License-Identifier: MIT OR Apache-2.0
/* Counts calls in all forms that maps have. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

__u64 calls;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} by_process SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

SEC("uprobe")
int count(void *registers)
{
	__u32 first = 0, process = bpf_get_current_pid_tgid() >> 32;
	__u64 none = 0, *number;

	__sync_fetch_and_add(&calls, 1);
	number = bpf_map_lookup_elem(&by_cpu, &first);
	if (number)
		*number += 1;
	// Of two threads that come first, neither replaces what the other has counted.
	number = bpf_map_lookup_elem(&by_process, &process);
	if (!number) {
		bpf_map_update_elem(&by_process, &process, &none, BPF_NOEXIST);
		number = bpf_map_lookup_elem(&by_process, &process);
	}
	if (number)
		__sync_fetch_and_add(number, 1);
	bpf_ringbuf_output(&events, &process, sizeof(process), 0);
	return 0;
}
