/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Values of CPUs: one run at a time has those of a CPU, so that a program adds to them as it does in the kernel, where
 * nothing interrupts it. It takes those of the CPU that it runs on, or of another one where a run that has them was
 * interrupted. Where all are taken, it does not run.
 */
#ifndef TURN_H
#define TURN_H

#include "map.h"
#include "identity.h"

/* Times that a run lets others go on before it counts as missed: a holder may be stopped by a debugger. */
#define TURN_YIELDS 200

struct turn {
	/* The thread that has them, 0 if none has. */
	u32 holder;
	u8 rest_of_cache_line[60];
};

/* src/probes/turns.rs has the same. */
struct turns {
	/* Runs that found all taken. */
	u64 missed;
	u64 cpus;
	u8 rest_of_cache_line[48];
	struct turn turn[];
};

typedef u64 program(const struct context *context);

/* Where the values of this run's CPU, or of its thread, begin. */
static u64 own_values(const struct map *map)
{
	if (map->cpu_bytes)
		return map->values + *(u64 *)(frame() + FRAME_TURN) * map->cpu_bytes;
	return control() + map->values;
}

/* Takes the values of a CPU that no run has, this run's if possible. Returns the CPU, or the number of CPUs. */
static u64 take_turn(struct turns *turns, u32 self)
{
	u64 at = cpu_and_node() & CPU_MASK, tries;
	u32 none;

	for (tries = 0; tries < turns->cpus; tries++, at++) {
		if (at >= turns->cpus)
			at = 0;
		none = 0;
		if (!__atomic_load_n(&turns->turn[at].holder, __ATOMIC_RELAXED) &&
		    __atomic_compare_exchange_n(&turns->turn[at].holder, &none, self, 0,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return at;
	}
	return turns->cpus;
}

/* Lets the threads run that were interrupted in their runs, until one has ended. A signal handler may wait for its own. */
static u64 wait_for_turn(struct turns *turns, u32 self)
{
	u64 at = turns->cpus, tries;

	for (tries = 0; at == turns->cpus && tries < TURN_YIELDS && environment.yields; tries++) {
		if (is_nested() && turns->cpus == 1)
			break;
		system_call(SCHED_YIELD, 0, 0, 0, 0, 0);
		at = take_turn(turns, self);
	}
	return at;
}

/* Runs a program that uses values of CPUs. */
u64 run_in_turn(const struct context *context, program *run, struct turns *turns)
{
	u32 self = this_holder();
	u64 at = take_turn(turns, self), result;

	if (at == turns->cpus)
		at = wait_for_turn(turns, self);
	if (at == turns->cpus) {
		__atomic_fetch_add(&turns->missed, 1, __ATOMIC_RELAXED);
		return 0;
	}
	*(u64 *)((u64)context + FRAME_TURN) = at;
	result = run(context);
	__atomic_store_n(&turns->turn[at].holder, 0, __ATOMIC_RELEASE);
	return result;
}

#endif
