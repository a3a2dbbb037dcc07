/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What syscount.bpf.c and syscount.rs agree on. */
#ifndef SYSCOUNT_H
#define SYSCOUNT_H

/* Whose system calls are counted, and who leaves out the others. */
enum syscount_filter {
	SYSCOUNT_KERNEL = 0, /* those of some processes; this program */
	SYSCOUNT_USER = 1, /* those of some processes; user space, which gets all of them */
	SYSCOUNT_ALL = 2, /* everyone's */
};

/* Processes that can be picked. */
#define SYSCOUNT_PROCESSES 16

/* Kinds of system calls, by process. */
#define SYSCOUNT_SUMS 16384

/* Threads that can be in a system call at once. */
#define SYSCOUNT_THREADS 16384

#define SYSCOUNT_RING_BYTES (32 << 20)

struct syscount_key {
	__u32 process;
	__u32 number;
};

struct syscount_sum {
	__u64 calls;
	__u64 ns;
};

/* A call that is over, for user space. */
struct syscount_call {
	__u32 process;
	__u32 number;
	__u64 ns;
};

/* What a CPU saw. */
struct syscount_runs {
	__u64 entered;
	__u64 left;
	__u64 lost; /* calls for which there was no room in a map or the ring */
};

#endif
