// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Compiled without BTF: two functions, the second called by the first alone. */
struct xdp_md {
	unsigned int data, data_end;
};

static __attribute__((noinline)) long length(struct xdp_md *ctx)
{
	return (long)ctx->data_end - (long)ctx->data;
}

__attribute__((section("xdp"), used)) int longer(struct xdp_md *ctx)
{
	return length(ctx) > 100 ? 1 : 2;
}

char _license[] __attribute__((section("license"), used)) = "GPL";
