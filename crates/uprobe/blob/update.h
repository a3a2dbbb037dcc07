/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps by their keys. */
#ifndef UPDATE_H
#define UPDATE_H

#include "map.h"
#include "table.h"
#include "identity.h"
#include "turn.h"

typedef s64 callback(const struct map *map, const void *key, void *value, void *context);

static void *array_lookup(const struct map *map, u32 key)
{
	u64 values = map->memory;

	if (key >= map->entries)
		return NULL;
	if (map->kind == THREAD_ARRAY)
		values = own_values(map);
	return (void *)(values + (u64)key * map->stride);
}

static u8 is_table(const struct map *map)
{
	return map->kind == TABLE || map->kind == LRU_TABLE || is_of_threads(map);
}

QUIET void *bpf_map_lookup_elem(const struct map *map, const u32 *key)
{
	if (is_table(map))
		return table_lookup(map, (const u8 *)key);
	return array_lookup(map, *key);
}

s64 bpf_map_update_elem(const struct map *map, const u32 *key, const void *value, u64 flags)
{
	if (is_table(map))
		return table_update(map, (const u8 *)key, value, flags);
	if (flags > EXIST)
		return -EINVAL;
	if (*key >= map->entries)
		return -E2BIG;
	if (flags == NOEXIST)
		return -EEXIST;
	copy(array_lookup(map, *key), value, map->value_size);
	return 0;
}

/* Arrays have no keys to delete. */
s64 bpf_map_delete_elem(const struct map *map, const u32 *key)
{
	return is_table(map) ? table_delete(map, (const u8 *)key) : -EINVAL;
}

/* Calls it with each entry, until it returns something other than 0. Returns how many there were. */
s64 bpf_for_each_map_elem(const struct map *map, callback *call, void *context, u64 flags)
{
	s64 count = 0;
	struct node *node;
	u32 i, at, next, steps;

	if (flags)
		return -EINVAL;
	if (!is_table(map)) {
		for (i = 0; i < map->entries; i++, count++)
			if (call(map, &i, array_lookup(map, i), context))
				return count + 1;
		return count;
	}
	for (i = 0; i <= map->mask; i++) {
		at = __atomic_load_n(&table_of(map)->buckets[i].first, __ATOMIC_ACQUIRE);
		for (steps = 0; is_node(map, at) && steps < map->entries; steps++) {
			node = node_of(map, at);
			/* The callback may delete it. */
			next = __atomic_load_n(&node->next, __ATOMIC_ACQUIRE);
			count++;
			if (call(map, node->key, value_here(map, at), context))
				return count;
			at = next;
		}
	}
	return count;
}

#endif
