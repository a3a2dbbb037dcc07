/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Copies whose faults a signal handler of ours ends (src/process/guard.rs). Two things keep a bad address from ending
 * the process, and each is enough:
 *
 * - Before a copy, the kernel is asked whether the pages can be read. The last page that could be is not asked for
 *   again in the same run of the programs at a place. So no copy faults, unless another thread unmaps the page after
 *   that question.
 * - The handler is in place, and the thread doesn't block its signals. That is asked for once in each tick of the
 *   clock.
 *
 * Where the second isn't so, nothing is copied here: the kernel reads.
 */
#ifndef GUARD_H
#define GUARD_H

#include "clock.h"
#include "identity.h"

/* The most pages of one copy. For more, the kernel reads. */
#define MAX_PAGES 4

/* What rt_sigaction and sigaltstack write. */
struct action {
	u64 handler;
	u64 flags;
	u64 restorer;
	u64 mask;
};

struct alternate_stack {
	u64 start;
	u64 flags;
	u64 bytes;
};

static u8 is_handler_ours(u64 signal)
{
	struct action action;

	return !system_call(RT_SIGACTION, signal, 0, (u64)&action, 8, 0) &&
	       action.handler == environment.guard_handler;
}

static u8 ask_for_handler(u64 base)
{
	u64 mask, blocked = 1ul << (SIGSEGV - 1) | 1ul << (SIGBUS - 1);
	struct alternate_stack stack;

	if (!is_handler_ours(SIGSEGV) || !is_handler_ours(SIGBUS) ||
	    system_call(RT_SIGPROCMASK, 0, 0, (u64)&mask, 8, 0) || mask & blocked ||
	    system_call(SIGALTSTACK, 0, (u64)&stack, 0, 0, 0))
		return 0;
	*(u64 *)(base + CONTROL_SIGNAL_STACK) = stack.start;
	*(u64 *)(base + CONTROL_SIGNAL_STACK_BYTES) = stack.bytes;
	return 1;
}

/* Whether a fault of this thread would be ended by the handler. */
static u8 is_guarded(void)
{
	u64 base, tick, stack;
	u64 *known;

	if (!environment.guard_handler || !environment.has_areas || !environment.clock_gettime)
		return 0;
	base = control();
	known = (u64 *)(base + CONTROL_GUARD);
	tick = clock(MONOTONIC_COARSE) << 1;
	if ((*known & ~1ul) != tick || is_other_thread(base)) {
		this_thread();
		*known = tick | ask_for_handler(base);
	}
	if (!(*known & 1))
		return 0;
	/*
	 * A thread that is on its signal stack itself: the kernel looks at the stack pointer, which leads to the probe's
	 * stack, and would put the handler's frame on top of what is there. Where a signal interrupted a probe and its
	 * handler ran into this one, that may be so of the first.
	 */
	stack = *(u64 *)(frame() + FRAME_STACK);
	if (is_own(stack))
		return 0;
	return stack - *(u64 *)(base + CONTROL_SIGNAL_STACK) >
	       *(u64 *)(base + CONTROL_SIGNAL_STACK_BYTES);
}

/* Whether a page can be read. The last one is remembered while the programs at a place run. */
static u8 is_readable(u64 page)
{
	u64 *checked = (u64 *)(frame() + FRAME_CHECKED);

	if (*checked == page)
		return 1;
	if (!is_mapped(page))
		return 0;
	*checked = page;
	return 1;
}

/* The bytes have to be in few pages, and the thread has to be guarded. Whether all were copied. */
static u8 copy_guarded(void *to, u64 from, u64 bytes)
{
	u8 (*copy)(void *, u64, u64) = (void *)environment.guard_copy;
	u64 page;

	for (page = from & -PAGE; page < from + bytes; page += PAGE)
		if (!is_readable(page))
			return 0;
	return copy(to, from, bytes);
}

#endif
