/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What kernel_memory.bpf.c and unwind/memory.rs agree on. */
#ifndef KERNEL_MEMORY_H
#define KERNEL_MEMORY_H

/* Bytes that are copied at once. */
#define KERNEL_MEMORY_BYTES (1 << 20)

#endif
