// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * BPF helpers for user space, as bytes that are copied into the target: no libc, no vector register (the target's are
 * live), no writable data of their own. Each function here whose name is a helper's becomes that helper.
 */

#include "types.h"
#include "clock.h"
#include "identity.h"
#include "memory.h"
#include "map.h"
#include "table.h"
#include "ring.h"
#include "stack.h"
#include "update.h"
#include "trace.h"

enum {
	PR_GET_NAME = 16,
	COMM_BYTES = 16
};

/* Clocks, and who runs. */

QUIET u64 bpf_ktime_get_ns(void)
{
	return clock(MONOTONIC);
}

QUIET u64 bpf_ktime_get_coarse_ns(void)
{
	return clock(MONOTONIC_COARSE);
}

QUIET u64 bpf_ktime_get_boot_ns(void)
{
	return clock(BOOTTIME);
}

QUIET u64 bpf_ktime_get_tai_ns(void)
{
	return clock(TAI);
}

QUIET u64 bpf_get_smp_processor_id(void)
{
	return cpu_and_node() & CPU_MASK;
}

QUIET u64 bpf_get_numa_node_id(void)
{
	return cpu_and_node() >> 12;
}

/* The process in the upper half, the thread in the lower, both as the target's PID namespace numbers them. */
u64 bpf_get_current_pid_tgid(void)
{
	return this_thread();
}

struct namespace_ids {
	u32 thread;
	u32 process;
};

/* Of the namespace that is asked for, which has to be the target's own. */
s64 bpf_get_ns_current_pid_tgid(u64 device, u64 inode, struct namespace_ids *ids, u32 bytes)
{
	u64 thread = this_thread();

	if (bytes != sizeof(*ids) || device != environment.namespace_device ||
	    inode != environment.namespace_inode) {
		clear(ids, bytes);
		return -EINVAL;
	}
	ids->thread = thread;
	ids->process = thread >> 32;
	return 0;
}

/* Numbers in the target's user namespace. */
u64 bpf_get_current_uid_gid(void)
{
	return system_call(GETGID, 0, 0, 0, 0, 0) << 32 | system_call(GETUID, 0, 0, 0, 0, 0);
}

/* As the kernel's: cut where it is too long, zeros behind it. */
s64 bpf_get_current_comm(u8 *buffer, u32 bytes)
{
	u8 name[COMM_BYTES];
	u32 i;
	u8 ended = 0;

	if (!bytes)
		return -EINVAL;
	system_call(PRCTL, PR_GET_NAME, (u64)name, 0, 0, 0);
	for (i = 0; i < bytes; i++) {
		ended |= i >= COMM_BYTES || i == bytes - 1 || !name[i];
		*(volatile u8 *)(buffer + i) = ended ? 0 : name[i];
	}
	return 0;
}

/* The clock and the stack pointer, mixed until each bit depends on all: no state, nothing to share between threads. */
QUIET u64 bpf_get_prandom_u32(void)
{
	u32 low, high;
	u64 mixed;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	mixed = ((u64)high << 32 | low) + (u64)__builtin_frame_address(0) * 0x9e3779b97f4a7c15;
	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
	return (u32)(mixed ^ mixed >> 31);
}
