/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The thread that runs. */
#ifndef THREAD_H
#define THREAD_H

#include "types.h"

/* The address that a thread's own memory counts from. */
static u64 control(void)
{
	u64 base;

	asm("rdgsbase %0" : "=r"(base));
	return base;
}

/* The frame of the probe that runs. The next one of this thread, in a signal handler, would take the one below. */
static u64 frame(void)
{
	return *(u64 *)(control() + CONTROL_FRAME) + LEVEL;
}

/* Whether an address is in the thread's own area: on the stacks of its probes, or in the page behind. */
static u8 is_own(u64 address)
{
	return address - (control() - LEVELS * LEVEL) < LEVELS * LEVEL + PAGE;
}

/* The process in the upper half, the thread in the lower. Asked for once, and kept in the thread's area. */
static u64 this_thread(void)
{
	u64 *known = NULL;
	u64 thread;

	if (environment.has_areas) {
		known = (u64 *)(control() + CONTROL_THREAD);
		if (*known)
			return *known;
	}
	thread = system_call(GETPID, 0, 0, 0, 0, 0) << 32;
	thread |= system_call(GETTID, 0, 0, 0, 0, 0);
	if (known)
		*known = thread;
	return thread;
}

/* What Linux keeps for user space in IA32_TSC_AUX: the CPU in 12 bits, then the node. */
#define CPU_MASK 0xfff

static u32 cpu_and_node(void)
{
	u32 low, high, both;
	u64 wide;

	if (environment.has_rdpid) {
		asm volatile("rdpid %0" : "=r"(wide));
		return wide;
	}
	asm volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(both));
	return both;
}

#endif
