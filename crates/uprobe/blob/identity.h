/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The thread that runs: its area, its number, and its name as a holder of locks. The trampoline has shown that the area
 * is the thread's own, by the FS base; what is kept in the area may still be of a thread that ended and had the same FS
 * base (src/process/identity/mod.rs has the invariant).
 */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "types.h"

/*
 * The address that a thread's own memory counts from: the GS base. By a word that is so far from it, as to ask for the
 * base takes 3 ns.
 */
static u64 control(void)
{
	u64 limit;

	/* In the tool, which has no such word, it must stay behind the question for that. */
	asm volatile("movq %%gs:%c1, %0" : "=r"(limit) : "i"(CONTROL_LIMIT));
	return limit + FIRST_FRAME_BELOW + LEVELS * LEVEL;
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

/* A `how` that rt_sigprocmask doesn't have. It reads the set before it looks at that. */
#define NO_HOW 0x7fff

/* Whether a word of 8 bytes can be read. */
static u8 is_mapped(u64 address)
{
	return system_call(RT_SIGPROCMASK, NO_HOW, address, 0, 8, 0) == (u64)-EINVAL;
}

static u64 ask_for_thread(void)
{
	u64 process = system_call(GETPID, 0, 0, 0, 0, 0);

	return process << 32 | system_call(GETTID, 0, 0, 0, 0, 0);
}

/* The address of the word in which the C library has this thread's number; 0 where that is another one, or none. */
static u32 *find_word(u32 thread)
{
	u64 base, address;

	if (!environment.thread_word)
		return NULL;
	asm("rdfsbase %0" : "=r"(base));
	address = base + environment.thread_word;
	if (!is_mapped(address & ~7ul) || *(u32 *)address != thread)
		return NULL;
	return (u32 *)address;
}

/* Whether the thread whose number the area holds is the one that runs. Without the word, nothing says so. */
static u8 is_known_thread(u64 base)
{
	u64 known = *(u64 *)(base + CONTROL_THREAD);
	const volatile u32 *word = *(u32 **)(base + CONTROL_WORD);

	return word && known >> 32 && *word == (u32)known;
}

/* Whether the word says that another thread runs. */
static u8 is_other_thread(u64 base)
{
	return *(u64 *)(base + CONTROL_WORD) && !is_known_thread(base);
}

/* The process in the upper half, the thread in the lower. */
static u64 this_thread(void)
{
	u64 base, thread;

	if (!environment.has_areas)
		return ask_for_thread();
	base = control();
	if (is_known_thread(base))
		return *(u64 *)(base + CONTROL_THREAD);
	thread = ask_for_thread();
	if (thread != *(u64 *)(base + CONTROL_THREAD)) {
		*(u64 *)(base + CONTROL_THREAD) = thread;
		/* Of the thread before. */
		*(u64 *)(base + CONTROL_GUARD) = 0;
	}
	*(u32 **)(base + CONTROL_WORD) = find_word(thread);
	return thread;
}

/* A process that has this memory. */
static u64 this_process(void)
{
	u64 known = environment.has_areas ? *(u64 *)(control() + CONTROL_THREAD) : 0;

	return known >> 32 ? known >> 32 : this_thread() >> 32;
}

/* The tool's own lock: no area has this number. */
#define TOOL 0x7fffffff

/*
 * The running thread as a holder of locks: the process, as the tool numbers it, and the area. Numbers of threads are
 * others in each PID namespace.
 */
static u32 this_holder(void)
{
	if (!environment.has_areas)
		return TOOL;
	return environment.process << HOLDER_BITS | *(u32 *)(control() + CONTROL_HOLDER);
}

/* Whether the probe that runs interrupted another one of its thread. */
static u8 is_nested(void)
{
	return frame() != control() - FIRST_FRAME_BELOW;
}

/*
 * Whether a lock's holder is a thread of this process that ended. Of other processes, the tool decides: it releases
 * their locks.
 */
static u8 is_dead_here(u32 holder, u32 self)
{
	u32 own, first, areas, area, thread;

	if (self == TOOL)
		return 0;
	own = (control() - environment.first_control) / AREA;
	/* The first holder of this process. Forked children have others. */
	first = self - own;
	areas = first & ((1u << HOLDER_BITS) - 1) ? CHILD_AREAS : environment.areas;
	area = holder - first;
	if (holder < first || area >= areas)
		return 0;
	if (holder == self)
		return !is_nested();
	thread = *(u32 *)(environment.first_control + (u64)area * AREA + CONTROL_THREAD);
	return thread && system_call(KILL, thread, 0, 0, 0, 0) == (u64)-ESRCH;
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
