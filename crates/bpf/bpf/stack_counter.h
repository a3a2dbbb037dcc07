/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stack_counter.bpf.c and stack_counter.rs agree on. */
#ifndef STACK_COUNTER_H
#define STACK_COUNTER_H

/* What is done with a stack. */
enum stack_counter_mode {
	STACK_COUNTER_COUNT = 0, /* it is counted by unwind.bpf.h */
	STACK_COUNTER_EVENTS = 1, /* each event is reported, with the leaf of its stack */
	STACK_COUNTER_HELPER = 2, /* it is counted by bpf_get_stackid() and a hash map */
};

/* Bytes of a command's name. */
#define STACK_COUNTER_COMM 16

/* A record of the ring buffer. */
struct stack_counter_event {
	/* Bytes from the first node, 0 where addresses follow instead; in the upper half enum unwind_end. */
	__u64 leaf;
	__u64 ns; /* of the kernel's monotonic clock */
	__u32 process;
	__u32 thread;
	__u32 cpu;
	__u32 depth; /* addresses that follow */
	char comm[STACK_COUNTER_COMM];
};

#endif
