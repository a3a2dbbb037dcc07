// SPDX-License-Identifier: MIT OR Apache-2.0
/* Does nothing, so that a signal mostly interrupts what is around the program. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

static __always_inline int use(void)
{
	return 0;
}

#include "both_ends.h"
