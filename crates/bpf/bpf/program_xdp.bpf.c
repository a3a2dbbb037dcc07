// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_xdp: the driver of XDP programs (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Words of a state: where the frame is. */
enum {
	META,
	DATA,
	DATA_END
};

/* A bit for each word that a run moves: what moves it back is called around an empty program too, by 0. */
const volatile __u32 program_moved;
struct program_state program_halfway; /* on half the way */

PROGRAM_TARGET(struct xdp_md *ctx)

/* Stored and read again, an address is a number, which helpers can be given the difference of. */
static __always_inline void see(struct xdp_md *ctx, struct program_state *state)
{
	*(volatile __u64 *)&state->words[META] = (__u64)(long)ctx->data_meta;
	*(volatile __u64 *)&state->words[DATA] = (__u64)(long)ctx->data;
	*(volatile __u64 *)&state->words[DATA_END] = (__u64)(long)ctx->data_end;
}

/* How far a place has moved from where it was before the batch. */
static __always_inline __s64 moved(int from, int to)
{
	return *(volatile __u64 *)&program_start.words[to] -
	       *(volatile __u64 *)&program_now.words[from];
}

/* Whether what moves this word back is called in any case. */
static __always_inline _Bool always(int word)
{
	return program_moved >> word & 1;
}

/*
 * The first bytes, where the frame's first byte is still `rest` bytes away: those of them that are where they
 * belong. Others would overwrite what is behind them.
 */
static __always_inline void restore_front_halfway(struct xdp_md *ctx, __s64 rest)
{
	__u64 before = rest > 0 ? rest : 0, skipped = rest < 0 ? -rest : 0;
	__u64 *data, *packet;

	barrier_var(before);
	barrier_var(skipped);
	if (before >= PROGRAM_PACKET_BYTES || skipped >= PROGRAM_PACKET_BYTES - PROGRAM_FRONT_BYTES)
		return;
	data = (void *)(long)ctx->data + before;
	packet = (void *)program_packet + skipped;
	for (int i = 0; i < PROGRAM_FRONT_BYTES / 8; i++) {
		/* The frame may be too short for the last ones. */
		if ((void *)(data + i + 1) > (void *)(long)ctx->data_end)
			return;
		data[i] = packet[i];
	}
}

/* The length, or that of the frame on half the way where that is less. */
static __always_inline __u64 shorter(struct xdp_md *ctx, __u64 length)
{
	__u64 now;

	see(ctx, &program_halfway);
	now = *(volatile __u64 *)&program_halfway.words[DATA_END] -
	      *(volatile __u64 *)&program_halfway.words[DATA];
	return now < length ? now & (PROGRAM_PACKET_BYTES - 1) : length;
}

static __always_inline void restore(struct xdp_md *ctx)
{
	__u64 *data, *packet = (__u64 *)program_packet;
	__s64 metadata, head, tail, rest = 0;
	_Bool half = program_half();
	__u8 *bytes = program_packet;
	struct program_input *next;
	__u64 length;

	if (program_turns) {
		next = program_next(half);
		if (!next)
			return;
		bytes = next->bytes;
		*(volatile __u64 *)&program_start.words[DATA_END] =
			*(volatile __u64 *)&program_start.words[DATA] + next->length;
	}
	see(ctx, &program_now);
	metadata = *(volatile __u64 *)&program_now.words[DATA] -
		   *(volatile __u64 *)&program_now.words[META];
	if (half)
		metadata = (metadata >> 1) & ~3; /* whole words alone */
	if (always(META) || metadata)
		bpf_xdp_adjust_meta(ctx, metadata);
	head = moved(DATA, DATA);
	if (half) {
		rest = head - (head >> 1);
		head >>= 1;
	}
	if (always(DATA) || head)
		bpf_xdp_adjust_head(ctx, head);
	tail = moved(DATA_END, DATA_END);
	if (half)
		tail >>= 1;
	if (always(DATA_END) || tail)
		bpf_xdp_adjust_tail(ctx, tail);
	if (program_restore == RESTORE_FRONT) {
		if (half) {
			restore_front_halfway(ctx, rest);
			return;
		}
		data = (__u64 *)(long)ctx->data;
		if ((void *)data + PROGRAM_FRONT_BYTES > (void *)(long)ctx->data_end)
			return;
		for (int i = 0; i < PROGRAM_FRONT_BYTES / 8; i++)
			data[i] = packet[i];
	}
	if (program_restore == RESTORE_ALL) {
		/* A program that adds bytes in front and does not write them would find those of another packet. */
		if (program_turns && rest > 0)
			return;
		length = program_bytes();
		if (half)
			length = shorter(ctx, length);
		if (length >= PROGRAM_LEAST_BYTES)
			bpf_xdp_store_bytes(ctx, 0, bytes, length);
	}
}

PROGRAM_DRIVER("xdp", program_xdp, struct xdp_md, see, restore)
