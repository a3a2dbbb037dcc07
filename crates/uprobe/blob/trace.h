/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lines of text for people: written into a ring of the process, which the tool reads. The translator passes the ring
 * as a sixth argument. What finds no room is counted there, and the helper's result is the same.
 */
#ifndef TRACE_H
#define TRACE_H

#include "clock.h"
#include "format.h"
#include "ring.h"

/* The most bytes of a line: the kernel's. */
#define LINE 1024

/* `HEAD` in src/probes/trace.rs. */
struct line {
	u64 time;
	u64 thread;
	u64 cpu;
	u8 text[];
};

static s64 trace(const struct map *ring, const u8 *text, u32 bytes, struct arguments *arguments)
{
	u8 line[LINE];
	struct line *record;
	u64 length = 0;
	s64 result;
	u32 i;

	for (i = 0; i < bytes && text[i]; i++)
		;
	if (i == bytes)
		return -EINVAL;
	result = format(line, LINE, text, arguments);
	if (result < 0)
		return result;
	while (line[length])
		length++;
	record = bpf_ringbuf_reserve(ring, sizeof(*record) + length, 0);
	if (!record)
		return result;
	record->time = clock(MONOTONIC);
	record->thread = this_thread();
	record->cpu = cpu_and_node() & CPU_MASK;
	copy(record->text, line, length);
	finish(record, 0);
	return result;
}

READS_LOUDLY s64 bpf_trace_printk(const u8 *text, u32 bytes, u64 first, u64 second, u64 third,
				  const struct map *ring)
{
	u64 words[3] = { first, second, third };
	struct arguments arguments;

	arguments.words = words;
	arguments.count = 3;
	return trace(ring, text, bytes, &arguments);
}

READS_LOUDLY s64 bpf_trace_vprintk(const u8 *text, u32 bytes, const u64 *words, u32 word_bytes,
				   u64 unused, const struct map *ring)
{
	struct arguments arguments;

	if (word_bytes % 8 || word_bytes > MAX_ARGUMENTS * 8 || (word_bytes && !words))
		return -EINVAL;
	arguments.words = words;
	arguments.count = word_bytes / 8;
	return trace(ring, text, bytes, &arguments);
}

#endif
