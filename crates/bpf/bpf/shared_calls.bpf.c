// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * shared_calls: a probe at a function that many threads call at once.
 *
 * In the number: the mechanism that calls the program, and a count of its own for each CPU, or for each thread where
 * the program runs in user space. The count is atomic: in the kernel, a thread may lose its CPU to another one in the
 * middle of a program.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("uprobe")
int count(struct pt_regs *ctx)
{
	__u32 key = 0;
	__u64 *mine = bpf_map_lookup_elem(&hits, &key);

	if (mine)
		__sync_fetch_and_add(mine, 1);
	return 0;
}
