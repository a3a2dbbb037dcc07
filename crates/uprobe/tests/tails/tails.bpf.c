// SPDX-License-Identifier: MIT OR Apache-2.0
/* What tools read at the return of a function: its result, its address, the caller's stack. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define FRAMES 16

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__uint(value_size, FRAMES * 8);
} stacks SEC(".maps");

/* In one structure, so that their order is known. */
struct {
	__u64 runs, sum, function, walks;
} all;

SEC("uretprobe")
int BPF_URETPROBE(on_return, __u64 result)
{
	__sync_fetch_and_add(&all.runs, 1);
	__sync_fetch_and_add(&all.sum, result);
	all.function = bpf_get_func_ip(ctx);
	if (bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK) != -22)
		__sync_fetch_and_add(&all.walks, 1);
	return 0;
}

/* In the function that the probed one jumped to. */
SEC("uprobe")
int on_walk(struct pt_regs *ctx)
{
	__u64 addresses[FRAMES];

	if (bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK) != -22 &&
	    bpf_get_stack(ctx, addresses, sizeof(addresses), BPF_F_USER_STACK) > 0)
		__sync_fetch_and_add(&all.walks, 1);
	return 0;
}
