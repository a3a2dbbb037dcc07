/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stack_tracer.bpf.c and stack_tracer.rs agree on. */
#ifndef STACK_TRACER_H
#define STACK_TRACER_H

/* What takes a stack. */
enum stack_tracer_walker {
	STACK_TRACER_HELPER = 0, /* bpf_get_stack() */
	STACK_TRACER_MANUAL = 1, /* unwind.bpf.h */
};

/* What becomes of it. */
enum stack_tracer_delivery {
	STACK_TRACER_DROP = 0, /* it is written into a buffer of the CPU, and no one reads it */
	STACK_TRACER_RING = 1, /* it goes into the ring buffer */
	STACK_TRACER_COUNT =
		2, /* it is counted in the tree of contexts; STACK_TRACER_MANUAL only */
};

/* Addresses of a stack at most: as many as the helper returns by default (kernel.perf_event_max_stack). */
#define STACK_TRACER_DEPTH 127

/* Events of a CPU. Each is in `events`, and either in `delivered` or in `lost`. */
struct stack_tracer_counts {
	__u64 events;
	__u64 delivered;
	__u64 lost; /* no stack was taken, or there was no room for it */
	__u64 frames; /* addresses of the stacks that were delivered, but for STACK_TRACER_COUNT */
};

#endif
