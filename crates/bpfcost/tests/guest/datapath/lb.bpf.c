// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath of xdp-lb as anyone would write a program: no loop, no reset. */
#include "balance.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int lb(struct xdp_md *ctx)
{
	return balance(ctx, FAULT_NONE);
}
