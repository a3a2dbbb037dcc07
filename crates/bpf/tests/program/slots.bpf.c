// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Arrays of programs: one filled by the source, one by a loader; and programs that make tail calls. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("xdp")
int in_slot(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* As many bytes in front as the first one says. */
SEC("xdp")
int pushes(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, -20) ? XDP_ABORTED : XDP_TX;
}

int again(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} slots SEC(".maps") = {
	.values = { [0] = (void *)&in_slot, [1] = (void *)&pushes, [2] = (void *)&again },
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next SEC(".maps");

/* It makes no tail call. */
SEC("xdp")
int apart(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* What it returns without a tail call is what the called program returns: no code shows that none was made. */
SEC("xdp")
int drops(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &slots, 0);
	return XDP_DROP;
}

SEC("xdp")
int calls_push(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &slots, 1);
	return XDP_ABORTED;
}

/* The second half of a chain of two. */
SEC("xdp")
int calls_next(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &next, 0);
	return XDP_ABORTED;
}

/* Until the kernel makes no more. */
SEC("xdp")
int again(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &slots, 2);
	return XDP_PASS;
}
