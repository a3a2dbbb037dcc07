// SPDX-License-Identifier: MIT OR Apache-2.0
/* Takes some 100 microseconds, so that a signal nearly always interrupts it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TIMES 4000

char _license[] SEC("license") = "Dual MIT/GPL";

__u64 last;

static __always_inline int use(void)
{
	for (int i = 0; i < TIMES; i++)
		last = bpf_ktime_get_ns();
	return 0;
}

#include "both_ends.h"
