// SPDX-License-Identifier: MIT OR Apache-2.0
/* Changes a table that processes share. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

/* Updates, and those that failed. */
__u64 calls, failed;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

SEC("uprobe")
int on_update(void *context)
{
	__u64 value = 1;
	__u32 key = 7;

	__sync_fetch_and_add(&calls, 1);
	if (bpf_map_update_elem(&table, &key, &value, BPF_ANY))
		__sync_fetch_and_add(&failed, 1);
	return 0;
}
