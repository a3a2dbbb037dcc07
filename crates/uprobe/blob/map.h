/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What helpers get as a map: `MapDescriptor` in src/translate/helpers/map.rs. */
#ifndef MAP_H
#define MAP_H

#include "types.h"

enum map_kind {
	ARRAY,
	/* An array of each thread, or of each CPU: what the kernel has per CPU. */
	THREAD_ARRAY,
	TABLE,
	/* A table that drops an entry where it is full. */
	LRU_TABLE,
	RING,
	STACKS,
	/* An array of programs, for tail calls alone, which the translator writes. */
	PROGRAMS,
	/* From here on: tables with a value of each thread, or of each CPU, and those of them that drop an entry where they are full. */
	THREAD_TABLE,
	LRU_THREAD_TABLE
};

struct map {
	/* Where it begins. */
	u64 memory;
	u32 value_size;
	/* From one value, or node, to the next. */
	u32 stride;
	u32 entries;
	u32 kind;
	u32 key_size;
	/* Buckets of a table, or bytes of a ring, less 1. */
	u32 mask;
	/* Where values of threads begin, counted from the thread's control page; or those of CPUs, in memory. */
	u64 values;
	/* From a CPU's values to those of the next; 0 where they are of threads. */
	u64 cpu_bytes;
};

/* Flags of updates, of linux/bpf.h. */
enum {
	ANY,
	NOEXIST,
	EXIST
};

#endif
