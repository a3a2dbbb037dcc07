// SPDX-License-Identifier: MIT OR Apache-2.0
/* Uses maps of all kinds, and reads memory. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ENTRIES (1 << 20)

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENTRIES);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES / 16);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} of_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ring SEC(".maps");

static __always_inline int use(void)
{
	__u32 key = bpf_ktime_get_ns() & (ENTRIES - 1), zero = 0;
	__u64 value = 0, *count;

	bpf_probe_read_user(&value, sizeof(value), (void *)8);
	bpf_map_update_elem(&table, &key, &value, BPF_ANY);
	bpf_ringbuf_output(&ring, &value, sizeof(value), 0);
	count = bpf_map_lookup_elem(&array, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&of_threads, &zero);
	if (count)
		*count += 1;
	return 0;
}

#include "both_ends.h"
