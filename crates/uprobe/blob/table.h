/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Hash tables in memory that several processes and the tool share: buckets of linked nodes, as the kernel's. A node
 * stays where it is, so that programs may keep the address of its value; after a deletion it may be another key's, as
 * in a table of the kernel that allocates all its nodes at first.
 *
 * Looking up takes no lock: a chain that changed meanwhile ends in another bucket's mark. Updates and deletions lock
 * the bucket. A thread that finds its own lock is a signal handler in an update: -EBUSY, as the kernel answers there.
 * A lock whose thread died is taken over, and the tool releases those of processes that ended: each step of a change
 * leaves the bucket whole.
 *
 * A bucket keeps one node that was deleted, its spare, for its next insertion: the same keys come and go. So neither
 * touches the list of free nodes, which all threads share. When that list is empty for the first time, all spares go
 * there, and no further ones are kept.
 *
 * Of a table with a value of each thread, the values are in the threads' memory, at their node's number. A node has only
 * a count there, of the entries that it ever was: a thread's value of another entry than the present one is zero. So an
 * insertion need not reach the memory of other threads, or of other processes.
 */
#ifndef TABLE_H
#define TABLE_H

#include "map.h"
#include "identity.h"
#include "turn.h"

/* Ends of chains: a bucket's number with this bit, and the end of the list of free nodes. */
#define MARK	 (1u << 31)
#define FREE_END (MARK | 0x7fffffff)

#define LOOKUPS 4 /* before a chain that keeps changing counts as one without the key */
#define SPINS	100
#define YIELDS	1000
#define VICTIMS 64 /* buckets that are looked at for an entry to drop */

struct bucket {
	u32 lock;
	u32 first;
	/* A node that was deleted; 0 where there is none. */
	u32 spare;
	u32 unused;
};

/* Spares of all buckets: kept, or given to the free list. */
enum {
	KEPT,
	TAKEN, /* some may be left */
	ALL_TAKEN
};

/* What a table begins with. */
struct table {
	/* The first free node, 0 bits for how often it changed. */
	u64 free;
	/* Updates that failed as another process holds a lock: the tool looks whether that one is there. */
	u64 stuck;
	u64 spares;
	u64 reserved[5];
	struct bucket buckets[];
};

/* Nodes are numbered from 1. */
struct node {
	u32 next;
	u32 hash;
	u8 key[];
};

static struct table *table_of(const struct map *map)
{
	return (struct table *)map->memory;
}

static struct node *node_of(const struct map *map, u32 number)
{
	u64 nodes =
		map->memory + sizeof(struct table) + ((u64)map->mask + 1) * sizeof(struct bucket);

	return (struct node *)(nodes + (u64)(number - 1) * map->stride);
}

/* What is no mark and no node's number either was not written by these functions. */
static u8 is_node(const struct map *map, u32 number)
{
	return number - 1 < map->entries;
}

static void *value_of(const struct map *map, struct node *node)
{
	return node->key + ((map->key_size + 7) & ~7u);
}

/* A thread's own value of a node. */
struct own {
	u64 entry;
	u8 value[];
};

static u8 is_of_threads(const struct map *map)
{
	return map->kind >= THREAD_TABLE;
}

static u8 drops_entries(const struct map *map)
{
	return map->kind == LRU_TABLE || map->kind == LRU_THREAD_TABLE;
}

static void *own_value(const struct map *map, u32 number)
{
	u64 bytes = (map->value_size + 7) & ~7ul;
	struct own *own =
		(struct own *)(own_values(map) + (number - 1) * (sizeof(struct own) + bytes));
	u64 entry = __atomic_load_n((u64 *)value_of(map, node_of(map, number)), __ATOMIC_RELAXED);

	if (own->entry != entry) {
		/* In this order: a signal handler in between does the same. */
		clear(own->value, bytes);
		__atomic_store_n(&own->entry, entry, __ATOMIC_RELEASE);
	}
	return own->value;
}

/* What a program gets as a node's value. The tool has no memory of a thread, and gets the count. */
static void *value_here(const struct map *map, u32 number)
{
	if (is_of_threads(map) && environment.has_areas)
		return own_value(map, number);
	return value_of(map, node_of(map, number));
}

static void copy_value(const struct map *map, u32 number, const void *value)
{
	/* The tool writes values of threads and CPUs by itself. */
	if (!is_of_threads(map) || environment.has_areas)
		copy(value_here(map, number), value, map->value_size);
}

static u32 hash_of(const u8 *key, u32 bytes)
{
	u64 hash = 0x9e3779b97f4a7c15 ^ bytes, word;
	unsigned __int128 product;

	while (bytes) {
		word = 0;
		if (bytes >= 8) {
			word = *(const u64 *)key;
			key += 8;
			bytes -= 8;
		} else if (bytes == 4) {
			word = *(const u32 *)key;
			bytes = 0;
		} else {
			for (; bytes; bytes--)
				word = word << 8 | *key++;
		}
		product = (unsigned __int128)(hash ^ word) * 0xbf58476d1ce4e5b9;
		hash = (u64)product ^ (u64)(product >> 64);
	}
	return hash ^ hash >> 32;
}

static u8 is_equal(const u8 *one, const u8 *other, u32 bytes)
{
	for (; bytes >= 8; bytes -= 8, one += 8, other += 8)
		if (*(const u64 *)one != *(const u64 *)other)
			return 0;
	if (bytes == 4)
		return *(const u32 *)one == *(const u32 *)other;
	for (; bytes; bytes--)
		if (*one++ != *other++)
			return 0;
	return 1;
}

static u8 is_node_of(const struct map *map, const struct node *node, u32 hash, const u8 *key)
{
	return node->hash == hash && is_equal(node->key, key, map->key_size);
}

/* Not inline: a lookup in an array saves no register. */
__attribute__((noinline)) static void *table_lookup(const struct map *map, const u8 *key)
{
	u32 hash = hash_of(key, map->key_size), number = hash & map->mask, tries, steps, at;
	struct bucket *bucket = &table_of(map)->buckets[number];
	struct node *node;

	for (tries = 0; tries < LOOKUPS; tries++) {
		at = __atomic_load_n(&bucket->first, __ATOMIC_ACQUIRE);
		for (steps = 0; is_node(map, at) && steps < map->entries; steps++) {
			node = node_of(map, at);
			if (is_node_of(map, node, hash, key))
				return value_here(map, at);
			at = __atomic_load_n(&node->next, __ATOMIC_ACQUIRE);
		}
		if (at == (MARK | number))
			break;
	}
	return NULL;
}

static u8 try_lock(struct bucket *bucket, u32 seen, u32 self)
{
	return __atomic_compare_exchange_n(&bucket->lock, &seen, self, 0, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static s64 lock(struct table *table, struct bucket *bucket)
{
	u32 self = this_holder(), tries, holder;

	/* So that others see whether the holder is alive. */
	if (self != TOOL)
		this_thread();
	for (tries = 0; tries < SPINS + YIELDS; tries++) {
		if (try_lock(bucket, 0, self))
			return 0;
		holder = __atomic_load_n(&bucket->lock, __ATOMIC_RELAXED);
		if (holder == self && self != TOOL && is_nested())
			return -EBUSY;
		if (tries < SPINS)
			asm volatile("pause");
		else
			system_call(SCHED_YIELD, 0, 0, 0, 0, 0);
		if (tries % SPINS == SPINS - 1 && holder && is_dead_here(holder, self) &&
		    try_lock(bucket, holder, self))
			return 0;
	}
	__atomic_fetch_add(&table->stuck, 1, __ATOMIC_RELAXED);
	return -EBUSY;
}

static void unlock(struct bucket *bucket)
{
	__atomic_store_n(&bucket->lock, 0, __ATOMIC_RELEASE);
}

/* Takes a free node; 0 where there is none. */
static u32 take_free(const struct map *map)
{
	struct table *table = table_of(map);
	u64 seen = __atomic_load_n(&table->free, __ATOMIC_ACQUIRE), wanted;

	do {
		if (!is_node(map, seen))
			return 0;
		/* The upper half tells a list that was changed and changed back. */
		wanted = ((seen >> 32) + 1) << 32 | node_of(map, seen)->next;
	} while (!__atomic_compare_exchange_n(&table->free, &seen, wanted, 0, __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	return seen;
}

static void give_back(const struct map *map, u32 number)
{
	struct table *table = table_of(map);
	u64 seen = __atomic_load_n(&table->free, __ATOMIC_ACQUIRE), wanted;

	do {
		__atomic_store_n(&node_of(map, number)->next, (u32)seen, __ATOMIC_RELEASE);
		wanted = ((seen >> 32) + 1) << 32 | number;
	} while (!__atomic_compare_exchange_n(&table->free, &seen, wanted, 0, __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
}

/* Makes the spares of all other buckets free, and keeps that from happening again. */
__attribute__((noinline, cold)) static void take_spares(const struct map *map,
							const struct bucket *locked)
{
	struct table *table = table_of(map);
	u64 left = 0, tries;
	u32 i, spare;

	/* Before any bucket is looked at: who locks one later sees it. */
	__atomic_store_n(&table->spares, TAKEN, __ATOMIC_SEQ_CST);
	for (i = 0; i <= map->mask; i++) {
		struct bucket *bucket = &table->buckets[i];

		if (bucket == locked)
			continue;
		/* Not for ever: its holder may wait for this one's bucket. */
		for (tries = 0; !try_lock(bucket, 0, this_holder()); tries++) {
			if (tries == SPINS)
				goto skipped;
			asm volatile("pause");
		}
		spare = bucket->spare;
		bucket->spare = 0;
		unlock(bucket);
		if (is_node(map, spare))
			give_back(map, spare);
		continue;
skipped:
		left++;
	}
	if (!left)
		__atomic_store_n(&table->spares, ALL_TAKEN, __ATOMIC_RELAXED);
}

/* Takes the last node out of some other bucket: the one that came first. 0 where none was found. */
static u32 evict(const struct map *map, u32 hash)
{
	struct table *table = table_of(map);
	struct bucket *bucket;
	u32 tries, *link, last;

	for (tries = 1; tries <= VICTIMS; tries++) {
		/* A step of its own, so that one bucket after the other is emptied. */
		bucket = &table->buckets[(hash + tries * 0x9e3779b1) & map->mask];
		if (bucket == &table->buckets[hash & map->mask] || !is_node(map, bucket->first) ||
		    !try_lock(bucket, 0, this_holder()))
			continue;
		link = &bucket->first;
		last = *link;
		if (!is_node(map, last)) {
			unlock(bucket);
			continue;
		}
		while (is_node(map, node_of(map, last)->next)) {
			link = &node_of(map, last)->next;
			last = *link;
		}
		__atomic_store_n(link, node_of(map, last)->next, __ATOMIC_RELEASE);
		unlock(bucket);
		return last;
	}
	return 0;
}

/* Where the number of a key's node stands in its bucket, which is locked; NULL where it has none. */
static u32 *link_of(const struct map *map, struct bucket *bucket, u32 hash, const u8 *key)
{
	u32 *link = &bucket->first;

	for (; is_node(map, *link); link = &node_of(map, *link)->next)
		if (is_node_of(map, node_of(map, *link), hash, key))
			return link;
	return NULL;
}

/* A node for a new entry of a bucket, which is locked; 0 where all are in use. */
static u32 take_node(const struct map *map, struct bucket *bucket, u32 hash)
{
	u32 number = bucket->spare;

	if (is_node(map, number)) {
		bucket->spare = 0;
		return number;
	}
	number = take_free(map);
	if (!number && __atomic_load_n(&table_of(map)->spares, __ATOMIC_RELAXED) != ALL_TAKEN) {
		take_spares(map, bucket);
		number = take_free(map);
	}
	if (!number && drops_entries(map))
		number = evict(map, hash);
	return number;
}

static s64 table_update(const struct map *map, const u8 *key, const void *value, u64 flags)
{
	u32 hash = hash_of(key, map->key_size), number, *link;
	struct bucket *bucket = &table_of(map)->buckets[hash & map->mask];
	struct node *node;
	s64 error = 0;

	if (flags > EXIST)
		return -EINVAL;
	if (lock(table_of(map), bucket))
		return -EBUSY;
	link = link_of(map, bucket, hash, key);
	if (link) {
		if (flags == NOEXIST)
			error = -EEXIST;
		else
			copy_value(map, *link, value);
		goto out;
	}
	if (flags == EXIST) {
		error = -ENOENT;
		goto out;
	}
	number = take_node(map, bucket, hash);
	if (!number) {
		error = -E2BIG;
		goto out;
	}
	node = node_of(map, number);
	if (is_of_threads(map))
		__atomic_fetch_add((u64 *)value_of(map, node), 1, __ATOMIC_RELAXED);
	copy_value(map, number, value);
	copy(node->key, key, map->key_size);
	__atomic_store_n(&node->hash, hash, __ATOMIC_RELEASE);
	__atomic_store_n(&node->next, bucket->first, __ATOMIC_RELEASE);
	__atomic_store_n(&bucket->first, number, __ATOMIC_RELEASE);
out:
	unlock(bucket);
	return error;
}

static s64 table_delete(const struct map *map, const u8 *key)
{
	u32 hash = hash_of(key, map->key_size), number, *link;
	struct bucket *bucket = &table_of(map)->buckets[hash & map->mask];

	if (lock(table_of(map), bucket))
		return -EBUSY;
	link = link_of(map, bucket, hash, key);
	if (!link) {
		unlock(bucket);
		return -ENOENT;
	}
	number = *link;
	__atomic_store_n(link, node_of(map, number)->next, __ATOMIC_RELEASE);
	if (!bucket->spare && __atomic_load_n(&table_of(map)->spares, __ATOMIC_RELAXED) == KEPT) {
		bucket->spare = number;
		unlock(bucket);
		return 0;
	}
	unlock(bucket);
	give_back(map, number);
	return 0;
}

#endif
