/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stacks of user space, by frame pointers: what the kernel's helpers return of them. */
#ifndef STACK_H
#define STACK_H

#include "map.h"
#include "memory.h"
#include "table.h"

/* The most frames, as the kernel has them by default (kernel.perf_event_max_stack). */
#define FRAMES 127

/* Flags, of linux/bpf.h. */
#define SKIP	     0xfful
#define USER_STACK   (1ul << 8)
#define FAST_COMPARE (1ul << 9)
#define REUSE	     (1ul << 10)

/* One entry of the map of stacks. */
struct stack {
	u32 hash;
	u32 frames;
	u64 addresses[];
};

/* Writes addresses, at most `most`, of a stack without its first `skip`; returns how many. */
static u32 walk(const struct context *context, u64 *addresses, u32 most, u32 skip)
{
	u64 frame[2] = { context->registers[RBP], context->registers[RIP] };
	u32 frames = 0, seen = 0;

	while (frames < most && seen < FRAMES) {
		if (seen++ >= skip)
			addresses[frames++] = frame[1];
		/* At its entry, a function has no frame yet: its caller stands on the stack. */
		if (seen == 1 && context->registers[RIP] == context->function) {
			if (!read(&frame[1], context->registers[RSP], 8))
				break;
			continue;
		}
		if (!frame[0] || frame[0] & 7 || !read(frame, frame[0], sizeof(frame)))
			break;
	}
	return frames;
}

/* In bytes. Only of user space: there is no kernel's stack here. */
READS s64 bpf_get_stack(const struct context *context, u64 *addresses, u32 bytes, u64 flags)
{
	u32 frames;

	if (flags & ~(SKIP | USER_STACK) || !(flags & USER_STACK) || bytes % 8) {
		clear(addresses, bytes);
		return -EINVAL;
	}
	frames = walk(context, addresses, bytes / 8, flags & SKIP);
	clear(addresses + frames, bytes - frames * 8);
	return frames * 8;
}

READS s64 bpf_get_stackid(const struct context *context, const struct map *map, u64 flags)
{
	u64 addresses[FRAMES];
	u32 frames, hash, id;
	struct stack *stack;

	if (flags & ~(SKIP | USER_STACK | FAST_COMPARE | REUSE) || !(flags & USER_STACK))
		return -EINVAL;
	frames = map->value_size / 8;
	frames = walk(context, addresses, frames < FRAMES ? frames : FRAMES, flags & SKIP);
	hash = hash_of((u8 *)addresses, frames * 8);
	id = hash & map->mask;
	stack = (struct stack *)(map->memory + (u64)id * map->stride);
	if (stack->frames == frames && stack->hash == hash &&
	    (flags & FAST_COMPARE || is_equal((u8 *)stack->addresses, (u8 *)addresses, frames * 8)))
		return id;
	if (stack->frames && !(flags & REUSE))
		return -EEXIST;
	copy(stack->addresses, addresses, frames * 8);
	stack->hash = hash;
	__atomic_store_n(&stack->frames, frames, __ATOMIC_RELEASE);
	return id;
}

#endif
