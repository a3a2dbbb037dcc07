// SPDX-License-Identifier: MIT OR Apache-2.0
/* An arena whose variables libbpf can't write. */
#include "arena.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE | SEGV_ON_FAULT);
	__uint(max_entries, 4);
} arena SEC(".maps");

__u64 __arena count = 3;

SEC("uprobe")
int add(struct pt_regs *ctx)
{
	count++;
	return 0;
}
