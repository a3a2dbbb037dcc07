/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hash table in an arena: buckets of chains, with numbers of nodes in place of pointers;
 * 0 ends a chain. Writers lock a stripe of buckets as the kernel's hash locks its bucket;
 * readers do not, and may see a value that is half written.
 *
 * Use: set arena_buckets, arena_pages and arena_value_bytes when the object is opened, make
 * the map "arena", and run arena_allocate once. Callers hash keys and number nodes.
 */
#ifndef ARENA_HASH_BPF_H
#define ARENA_HASH_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "timing.bpf.h"

#define __arena	       __attribute__((address_space(1)))
#define MAP_TYPE_ARENA 33 /* BPF_MAP_TYPE_ARENA, which Debian 12's headers lack */
#define ARENA_STRIPES  1024 /* a power of two */
#define ARENA_WORDS    32 /* of the largest value */

struct {
	__uint(type, MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages */
} arena SEC(".maps");

struct arena_node {
	__u32 next;
	__u32 unused;
	__u64 key;
	__u64 value[];
};

const volatile __u32 arena_buckets = 2048; /* a power of two */
const volatile __u32 arena_pages = 1;
const volatile __u32 arena_value_bytes = 16;

char __arena *arena_table; /* buckets, and then nodes */
__u32 arena_locks[ARENA_STRIPES];

void __arena *bpf_arena_alloc_pages(void *map, void __arena *address, __u32 page_count, int node,
				    __u64 flags) __ksym __weak;

SEC("?syscall")
int arena_allocate(void *ctx)
{
	arena_table = bpf_arena_alloc_pages(&arena, 0, arena_pages, -1, 0);
	return !arena_table;
}

static __always_inline __u32 __arena *arena_head(__u32 bucket)
{
	/* The program must name its arena for the verifier to know it. */
	asm volatile("" : : "r"(&arena));
	return (__u32 __arena *)arena_table + bucket;
}

static __always_inline struct arena_node __arena *arena_node(__u32 number)
{
	__u64 stride = sizeof(struct arena_node) + arena_value_bytes;

	return (struct arena_node __arena *)(arena_table + sizeof(__u32) * arena_buckets +
					     number * stride);
}

static __always_inline __u32 arena_bucket(__u32 hash)
{
	return hash & (arena_buckets - 1);
}

static __always_inline struct arena_node __arena *arena_find(__u32 bucket, __u64 key)
{
	for (__u32 number = *arena_head(bucket); number && timing_can_loop();) {
		struct arena_node __arena *node = arena_node(number);

		if (node->key == key)
			return node;
		number = node->next;
	}
	return 0;
}

static __always_inline _Bool arena_lock(__u32 bucket)
{
	while (__sync_lock_test_and_set(&arena_locks[bucket & (ARENA_STRIPES - 1)], 1))
		if (!timing_can_loop())
			return 0;
	return 1;
}

static __always_inline void arena_unlock(__u32 bucket)
{
	__sync_lock_test_and_set(&arena_locks[bucket & (ARENA_STRIPES - 1)], 0);
}

static __always_inline void arena_copy(struct arena_node __arena *node, __u64 *value)
{
	for (int i = 0; i < ARENA_WORDS && i < arena_value_bytes / 8; i++)
		node->value[i] = value[i];
}

/* Replaces the value of a key; false where it is not there. */
static __always_inline _Bool arena_replace(__u32 bucket, __u64 key, __u64 *value)
{
	struct arena_node __arena *node;

	if (!arena_lock(bucket))
		return 0;
	node = arena_find(bucket, key);
	if (node)
		arena_copy(node, value);
	arena_unlock(bucket);
	return node;
}

/* Puts a node of this number in; false where its key is there already. */
static __always_inline _Bool arena_insert(__u32 bucket, __u64 key, __u64 *value, __u32 number)
{
	struct arena_node __arena *node = arena_node(number);
	_Bool absent;

	node->key = key;
	arena_copy(node, value);
	if (!arena_lock(bucket))
		return 0;
	absent = !arena_find(bucket, key);
	if (absent) {
		node->next = *arena_head(bucket);
		*arena_head(bucket) = number;
	}
	arena_unlock(bucket);
	return absent;
}

/* Returns the number of the node that was taken out; 0 where there was none. */
static __always_inline __u32 arena_delete(__u32 bucket, __u64 key)
{
	__u32 number, previous = 0;

	if (!arena_lock(bucket))
		return 0;
	for (number = *arena_head(bucket); number && timing_can_loop();) {
		struct arena_node __arena *node = arena_node(number);

		if (node->key == key) {
			if (previous)
				arena_node(previous)->next = node->next;
			else
				*arena_head(bucket) = node->next;
			break;
		}
		previous = number;
		number = node->next;
	}
	arena_unlock(bucket);
	return number;
}

#endif
