// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ladder: bodies with a known number of added instructions, to ask a measurement whether
 * it reads back what was put in; one rung serves as the sentinel of every run.
 *
 * Each added instruction multiplies, and needs the one before, from run to run too: a CPU
 * can neither skip nor overlap them, so on hardware each costs the same number of cycles.
 *
 * The anchor is the opposite: additions that need not wait for each other, so that a CPU does
 * as many at once as it can. Whoever else works on the same core makes it slower.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "timing.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

__u64 product_so_far = 3; /* odd, and stays odd */

static __always_inline void reset(struct xdp_md *ctx)
{
}

#define RUNG(added)                                                                              \
	__noinline int body_##added(struct xdp_md *ctx)                                          \
	{                                                                                        \
		__u64 product = product_so_far;                                                  \
                                                                                                 \
		asm volatile(".rept " #added "\n"                                                \
			     "%[product] *= 5\n"                                                 \
			     ".endr"                                                             \
			     : [product] "+r"(product)                                           \
			     : "r"(ctx)); /* else clang passes none, and the verifier objects */ \
		product_so_far = product;                                                        \
		return product & 1 ? XDP_PASS : XDP_DROP;                                        \
	}                                                                                        \
	TIMED_PROGRAM("xdp", ladder_##added, struct xdp_md, body_##added, reset)

RUNG(0)
RUNG(1)
RUNG(10)
RUNG(100)
RUNG(1000)
RUNG(1010)

__u64 sums_so_far[4]; /* each grows by its place, from 1 on, with every step */

#define ANCHOR_STEPS 64

__noinline int body_anchor(struct xdp_md *ctx)
{
	__u64 first = sums_so_far[0], second = sums_so_far[1];
	__u64 third = sums_so_far[2], fourth = sums_so_far[3];

	asm volatile(".rept %c[steps]\n"
		     "%[first] += 1\n"
		     "%[second] += 2\n"
		     "%[third] += 3\n"
		     "%[fourth] += 4\n"
		     ".endr"
		     : [first] "+r"(first), [second] "+r"(second), [third] "+r"(third),
		       [fourth] "+r"(fourth)
		     : [steps] "i"(ANCHOR_STEPS), "r"(ctx));
	sums_so_far[0] = first;
	sums_so_far[1] = second;
	sums_so_far[2] = third;
	sums_so_far[3] = fourth;
	return XDP_PASS;
}
TIMED_PROGRAM("xdp", ladder_anchor, struct xdp_md, body_anchor, reset)
