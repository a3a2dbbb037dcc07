// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs whose input is their context. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("raw_tp/sys_enter")
int second_argument(struct bpf_raw_tracepoint_args *ctx)
{
	return ctx->args[1];
}

struct terms {
	__u64 a, b, sum;
};

SEC("syscall")
int compare(struct terms *terms)
{
	return terms->a < terms->b;
}

/* A second run finds what the first one left. */
SEC("syscall")
int sum(struct terms *terms)
{
	terms->sum += terms->a + terms->b;
	return terms->sum;
}
