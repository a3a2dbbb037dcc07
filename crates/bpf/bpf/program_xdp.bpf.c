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

static __always_inline void restore(struct xdp_md *ctx)
{
	__u64 *data, *packet = (__u64 *)program_packet;
	__s64 metadata, head, tail;
	_Bool half = program_half();
	__u64 length;

	see(ctx, &program_now);
	metadata = *(volatile __u64 *)&program_now.words[DATA] -
		   *(volatile __u64 *)&program_now.words[META];
	if (half)
		metadata = (metadata >> 1) & ~3; /* whole words alone */
	if (metadata)
		bpf_xdp_adjust_meta(ctx, metadata);
	head = moved(DATA, DATA);
	if (half)
		head >>= 1;
	if (head)
		bpf_xdp_adjust_head(ctx, head);
	tail = moved(DATA_END, DATA_END);
	if (half)
		tail >>= 1;
	if (tail)
		bpf_xdp_adjust_tail(ctx, tail);
	/* On half the way they would overwrite what is behind them. */
	if (program_restore == RESTORE_FRONT && !half) {
		data = (__u64 *)(long)ctx->data;
		if ((void *)data + PROGRAM_FRONT_BYTES > (void *)(long)ctx->data_end)
			return;
		for (int i = 0; i < PROGRAM_FRONT_BYTES / 8; i++)
			data[i] = packet[i];
	}
	if (program_restore == RESTORE_ALL) {
		length = program_bytes();
		if (length >= PROGRAM_LEAST_BYTES)
			bpf_xdp_store_bytes(ctx, 0, program_packet, length);
	}
}

PROGRAM_DRIVER("xdp", program_xdp, struct xdp_md, see, restore)
