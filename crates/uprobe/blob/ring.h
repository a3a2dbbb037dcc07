/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ring buffers with the kernel's records, of one process each: several threads write, the tool reads. What was read is
 * zero again, so that a record without a head is one that a thread is about to begin. The data is mapped twice, one
 * behind the other, so that no record ends at the end.
 */
#ifndef RING_H
#define RING_H

#include "map.h"
#include "memory.h"

#define HEAD	  8
#define BUSY	  (1u << 31)
#define DISCARDED (1u << 30)

/* Flags of submitting, of linux/bpf.h, both of which change nothing: the reader looks by itself. */
#define WAKEUP_FLAGS 3ul

/* What bpf_ringbuf_query can be asked. */
enum {
	AVAILABLE,
	RING_SIZE,
	CONSUMER,
	PRODUCER
};
/* The first page is the reader's. */
struct ring {
	u64 consumer;
	u8 first_page[PAGE - 8];
	u64 producer;
	/* Records that there was no room for. */
	u64 dropped;
	u8 second_page[PAGE - 16];
	u8 data[];
};

struct head {
	u32 bytes;
	u32 reserved;
};

static struct ring *ring_of(const struct map *map)
{
	return (struct ring *)map->memory;
}

QUIET void *bpf_ringbuf_reserve(const struct map *map, u64 bytes, u64 flags)
{
	struct ring *ring = ring_of(map);
	u64 whole = (bytes + HEAD + 7) & ~7ul, consumer, position, next;
	struct head *head;

	if (flags || bytes >= DISCARDED || whole > (u64)map->mask + 1)
		return NULL;
	do {
		/* First, so that it is not ahead of the position: the reader may overtake one that is old. */
		consumer = __atomic_load_n(&ring->consumer, __ATOMIC_ACQUIRE);
		position = __atomic_load_n(&ring->producer, __ATOMIC_ACQUIRE);
		next = position + whole;
		if (next - consumer > (u64)map->mask + 1) {
			__atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
			return NULL;
		}
	} while (!__atomic_compare_exchange_n(&ring->producer, &position, next, 0, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	head = (struct head *)(ring->data + (position & map->mask));
	__atomic_store_n(&head->bytes, (u32)bytes | BUSY, __ATOMIC_RELEASE);
	return head + 1;
}

static void finish(void *record, u32 discarded)
{
	struct head *head = (struct head *)record - 1;

	__atomic_store_n(&head->bytes, (head->bytes & ~BUSY) | discarded, __ATOMIC_RELEASE);
}

QUIET void bpf_ringbuf_submit(void *record, u64 flags)
{
	finish(record, 0);
}

QUIET void bpf_ringbuf_discard(void *record, u64 flags)
{
	finish(record, DISCARDED);
}

QUIET s64 bpf_ringbuf_output(const struct map *map, const void *data, u64 bytes, u64 flags)
{
	void *record;

	if (flags & ~WAKEUP_FLAGS)
		return -EINVAL;
	record = bpf_ringbuf_reserve(map, bytes, 0);
	if (!record)
		return -EAGAIN;
	copy(record, data, bytes);
	finish(record, 0);
	return 0;
}

/* An array of perf buffers, one for each CPU in the kernel, is one ring here: the choice of the CPU is left to the reader. */
QUIET s64 bpf_perf_event_output(const struct context *context, const struct map *map, u64 flags,
				const void *data, u64 bytes)
{
	if (flags >> 32)
		return -EINVAL;
	return bpf_ringbuf_output(map, data, bytes, 0) ? -ENOSPC : 0;
}

QUIET u64 bpf_ringbuf_query(const struct map *map, u64 what)
{
	struct ring *ring = ring_of(map);
	u64 consumer = __atomic_load_n(&ring->consumer, __ATOMIC_ACQUIRE);
	u64 producer = __atomic_load_n(&ring->producer, __ATOMIC_ACQUIRE);

	switch (what) {
	case AVAILABLE:
		return producer - consumer;
	case RING_SIZE:
		return (u64)map->mask + 1;
	case CONSUMER:
		return consumer;
	case PRODUCER:
		return producer;
	default:
		return 0;
	}
}

#endif
