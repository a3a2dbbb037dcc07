// SPDX-License-Identifier: MIT OR Apache-2.0
/* An arena, and more than a thread has memory for. */
#include "arena.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4);
} arena SEC(".maps");

struct value {
	__u64 words[1024];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct value);
} large SEC(".maps");

__u64 __arena count;

SEC("uprobe")
int add(struct pt_regs *ctx)
{
	__u32 first = 0;
	struct value *value = bpf_map_lookup_elem(&large, &first);

	if (value)
		count += value->words[0];
	return 0;
}
