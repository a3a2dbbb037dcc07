// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* kernel_memory: copies kernel memory for user space, which builds the tables of unwind.bpf.h from it. Nothing is timed. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel_memory.h"

char _license[] SEC("license") = "Dual BSD/GPL";

__u64 address; /* what to copy */
__u32 bytes; /* of it, at most KERNEL_MEMORY_BYTES */
__u8 copy[KERNEL_MEMORY_BYTES];

/* Returns 0, or 1 where there is no such memory. */
SEC("syscall")
int copy_memory(void *ctx)
{
	__u32 size = bytes;

	if (size > KERNEL_MEMORY_BYTES)
		return 1;
	return bpf_probe_read_kernel(copy, size, (const void *)address) != 0;
}
