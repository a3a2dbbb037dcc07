// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * xdp_lb: the load balancer's datapath (balance.bpf.h), timed in isolation.
 *
 * In the number: everything from the Ethernet header to the action's counter, and what
 * timing.bpf.h names. Not in it: a driver, a NIC, the kernel's work before and after XDP.
 */
#include "balance.bpf.h"
#include "timing.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/*
 * The datapath is a separate function (checked once by the verifier, and the same code in the
 * timed loop and elsewhere); the floors call an empty one.
 */
#define DATAPATH(name, fault)                   \
	__noinline int name(struct xdp_md *ctx) \
	{                                       \
		return balance(ctx, fault);     \
	}

DATAPATH(datapath, FAULT_NONE)
DATAPATH(outer_byte_datapath, FAULT_OUTER_BYTE)
DATAPATH(no_counter_datapath, FAULT_NO_COUNTER)
DATAPATH(udp_expired_datapath, FAULT_UDP_EXPIRED)
DATAPATH(ring_slot_datapath, FAULT_RING_SLOT)
DATAPATH(no_flood_check_datapath, FAULT_NO_FLOOD_CHECK)

__noinline int empty(struct xdp_md *ctx)
{
	int action = XDP_TX;

	/* Else clang passes no ctx, which the verifier objects to, and knows the answer. */
	asm volatile("" : "+r"(action) : "r"(ctx));
	return action;
}

/* What the reset restores; set by user space before a batch. */
__u64 packet_length; /* without the outer header */
struct ethhdr packet_ethernet;
struct sources sources[TIMING_MAX_CPUS];

/* The next source on this CPU, in network order. xorshift32 (Marsaglia 2003). */
static __always_inline __u32 next_source(void)
{
	struct sources *own = &sources[bpf_get_smp_processor_id() & (TIMING_MAX_CPUS - 1)];
	__u32 state = own->state;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	own->state = state;
	return bpf_htonl(own->prefix | (state & own->mask));
}

static __always_inline __u64 packet_bytes(struct xdp_md *ctx)
{
	__u64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	barrier_var(length); /* else clang reorders into arithmetic that the verifier refuses */
	return length;
}

/* Strips whatever stands in front of the packet; done again it costs the same. */
static __always_inline void *strip(struct xdp_md *ctx, unsigned int room)
{
	struct ethhdr *eth;

	if (bpf_xdp_adjust_head(ctx, packet_bytes(ctx) - packet_length))
		return 0;
	eth = (void *)(long)ctx->data;
	if ((void *)eth + room > (void *)(long)ctx->data_end)
		return 0;
	*eth = packet_ethernet;
	return eth + 1;
}

static __always_inline void reset_none(struct xdp_md *ctx)
{
}

static __always_inline void reset_strip(struct xdp_md *ctx)
{
	strip(ctx, sizeof(struct ethhdr));
}

static __always_inline void reset_strip_v4(struct xdp_md *ctx)
{
	struct iphdr *ip = strip(ctx, sizeof(struct ethhdr) + sizeof(*ip));

	if (ip)
		ip->saddr = next_source();
}

static __always_inline void reset_strip_v6(struct xdp_md *ctx)
{
	struct ipv6hdr *ip6 = strip(ctx, sizeof(struct ethhdr) + sizeof(*ip6));

	if (ip6)
		ip6->saddr.s6_addr32[3] = next_source();
}

/*
 * Fills the room that outer headers will stand in, so that a byte that is not written shows: the
 * kernel hands it over as zeros, and most of a header is zeros.
 */
static __always_inline void fill_room(struct xdp_md *ctx)
{
	int room = sizeof(struct ipv6hdr);
	void *data;

	if (bpf_xdp_adjust_head(ctx, -room))
		return;
	data = (void *)(long)ctx->data;
	if (data + room <= (void *)(long)ctx->data_end)
		__builtin_memset(data, 0xff, room);
	bpf_xdp_adjust_head(ctx, room);
}

#define LB_PROGRAM(name, datapath, reset) \
	PREPARED_PROGRAM("xdp", name, struct xdp_md, fill_room, datapath, reset)

#define LB_PROGRAMS(prefix, datapath)                           \
	LB_PROGRAM(prefix##_none, datapath, reset_none)         \
	LB_PROGRAM(prefix##_strip, datapath, reset_strip)       \
	LB_PROGRAM(prefix##_strip_v4, datapath, reset_strip_v4) \
	LB_PROGRAM(prefix##_strip_v6, datapath, reset_strip_v6)

LB_PROGRAMS(lb, datapath)
LB_PROGRAMS(floor, empty)

/*
 * The replay: the first operations of a sequence, untimed, with what each of them left.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LB_REPLAY_OPS);
	__type(key, __u32);
	__type(value, struct replayed);
} replay SEC(".maps");

__u64 replay_ops; /* at most LB_REPLAY_OPS */
__u64 replay_reset; /* enum reset_class */

struct replay_turn {
	struct xdp_md *ctx;
	__u64 done;
};

static __always_inline long replay_step(__u32 index, struct replay_turn *turn,
					int (*datapath)(struct xdp_md *))
{
	struct xdp_md *ctx = turn->ctx;
	struct replayed *seen;
	__u64 length;

	if (index) {
		if (replay_reset == LB_RESET_STRIP)
			reset_strip(ctx);
		else if (replay_reset == LB_RESET_STRIP_V4)
			reset_strip_v4(ctx);
		else if (replay_reset == LB_RESET_STRIP_V6)
			reset_strip_v6(ctx);
	}
	seen = bpf_map_lookup_elem(&replay, &index);
	if (!seen)
		return 1;
	seen->action = datapath(ctx);
	length = packet_bytes(ctx);
	seen->length = 0;
	turn->done++;
	/*
	 * No frame is shorter than its header. The barrier keeps clang from making one comparison
	 * of two, on a copy; Linux before 6.7 learns nothing from "not 0", hence not 1.
	 */
	if (length < sizeof(struct ethhdr))
		return 0;
	barrier_var(length);
	if (length > sizeof(seen->packet))
		return 0;
	if (!bpf_xdp_load_bytes(ctx, 0, seen->packet, length))
		seen->length = length;
	return 0;
}

#define REPLAY_PROGRAM(name, datapath)                       \
	static long name##_step(__u32 index, void *turn)     \
	{                                                    \
		return replay_step(index, turn, datapath);   \
	}                                                    \
                                                             \
	SEC("?xdp")                                          \
	int name(struct xdp_md *ctx)                         \
	{                                                    \
		struct replay_turn turn = { .ctx = ctx };    \
                                                             \
		bpf_loop(replay_ops, name##_step, &turn, 0); \
		return turn.done;                            \
	}

REPLAY_PROGRAM(lb_replay, datapath)

/* A faulty datapath, timed and replayed with IPv4 sources. Loaded by tests alone. */
#define FAULTY_PROGRAMS(name, datapath)                       \
	LB_PROGRAM(name##_strip_v4, datapath, reset_strip_v4) \
	REPLAY_PROGRAM(name##_replay, datapath)

FAULTY_PROGRAMS(outer_byte, outer_byte_datapath)
FAULTY_PROGRAMS(no_counter, no_counter_datapath)
FAULTY_PROGRAMS(udp_expired, udp_expired_datapath)
FAULTY_PROGRAMS(ring_slot, ring_slot_datapath)
FAULTY_PROGRAMS(no_flood_check, no_flood_check_datapath)
