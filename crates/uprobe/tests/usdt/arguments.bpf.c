// SPDX-License-Identifier: MIT OR Apache-2.0
/* What libbpf's functions find of a USDT site's arguments. The user's cookie tells which site it is. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

#define SITES 8

char _license[] SEC("license") = "Dual MIT/GPL";

struct result {
	__u64 runs;
	__s64 count;
	__s64 sizes[BPF_USDT_MAX_ARG_CNT];
	__s64 errors[BPF_USDT_MAX_ARG_CNT];
	/* Of all values, in their order. */
	__u64 values[BPF_USDT_MAX_ARG_CNT];
};

struct result results[SITES];

SEC("usdt")
int on_site(struct pt_regs *ctx)
{
	struct result *result = &results[bpf_usdt_cookie(ctx) & (SITES - 1)];
	long value;
	int i;

	result->runs++;
	result->count = bpf_usdt_arg_cnt(ctx);
	for (i = 0; i < BPF_USDT_MAX_ARG_CNT; i++) {
		result->sizes[i] = bpf_usdt_arg_size(ctx, i);
		result->errors[i] += bpf_usdt_arg(ctx, i, &value);
		result->values[i] = result->values[i] * 31 + value;
	}
	return 0;
}
