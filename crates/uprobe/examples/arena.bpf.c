// SPDX-License-Identifier: MIT OR Apache-2.0
/* What hits.rs times of arenas, which Linux has from 6.9 on. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define __arena __attribute__((address_space(1)))

/* A number that headers before Linux 6.9 lack. */
enum {
	TYPE_ARENA = 33
};

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
} arena SEC(".maps");

__u64 __arena count;

SEC("uprobe")
int on_arena(struct pt_regs *ctx)
{
	count += 1;
	return 0;
}
