// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What does it cost to hash a packet's Ethernet header? The shortest use of timing.bpf.h.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "jhash.h"
#include "timing.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

__u32 hash; /* of the packet as the last body found it */

static __always_inline int body(struct xdp_md *ctx)
{
	__u32 *word = (void *)(long)ctx->data;

	if ((void *)(word + 4) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	hash = jhash_4words(word, hash);
	return XDP_PASS;
}

/* Undoes what the body did to its input: the next run starts from the same hash. */
static __always_inline void reset(struct xdp_md *ctx)
{
	*(volatile __u32 *)&hash = 0;
}

TIMED_PROGRAM("xdp", example, struct xdp_md, body, reset)
