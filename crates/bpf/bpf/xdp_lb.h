/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * xdp_lb: what the datapath and user space agree on: keys, values, counters.
 *
 * Addresses and ports are in network order, as they stand in a packet; everything else
 * is in host order. An IPv4 address fills the first word of an address and leaves the
 * others zero.
 */
#ifndef XDP_LB_H
#define XDP_LB_H

#define LB_VIPS		   64 /* VIPs in the hash map */
#define LB_RINGS	   16 /* VIPs that have a ring of their own, by number */
#define LB_RING_SIZE	   65537 /* slots of one ring; prime */
#define LB_REALS	   512
#define LB_LRU_ENTRIES	   100000 /* flows per CPU */
#define LB_MAX_CPUS	   256 /* LRU tables in the array of maps */
#define LB_UDP_LIFETIME_NS 30000000000ULL
#define LB_FLOOD_LIMIT	   100000000ULL /* new connections per second and CPU */
#define LB_REPLAY_OPS	   4096 /* operations of a replay */
#define LB_REPLAY_BYTES	   136 /* the longest packet, rounded up: 78 + 40 + room */

#define LB_VIP_BYPASS_LRU 1 /* flag of a VIP */
#define LB_REAL_IPV6	  1 /* flag of a real */

struct address {
	__u32 word[4];
};

struct flow_key {
	struct address source, destination;
	__u16 source_port, destination_port;
	__u8 protocol, pad[3];
};

struct vip_key {
	struct address address;
	__u16 port;
	__u8 protocol, pad;
};

struct vip {
	__u32 flags, number;
};

struct real {
	struct address address;
	__u32 flags;
};

struct lru_entry {
	__u64 last_use_ns; /* of a UDP flow; 0 for TCP */
	__u32 real, pad;
};

struct traffic {
	__u64 packets, bytes;
};

struct flood {
	__u64 second_start_ns, connections;
};

struct control {
	__u8 router_mac[6], pad[2];
	__u32 watched_vip; /* the VIP whose misses are counted by real */
};

/* Per-CPU event counters, by index. */
enum counter {
	LB_VIP_PACKETS,
	LB_LRU_MISSES,
	LB_TCP_MISSES,
	LB_FLOODS,
	LB_COUNTERS,
};

/* The classes of reset, one floor each. */
enum reset_class {
	LB_RESET_NONE, /* nothing to undo */
	LB_RESET_STRIP, /* strip the outer header, restore the Ethernet header */
	LB_RESET_STRIP_V4, /* the same, and the next IPv4 source */
	LB_RESET_STRIP_V6, /* the same, and the next IPv6 source */
};

/* The sequence of sources on one CPU. Aligned so that CPUs share no cache line, nor a pair. */
struct sources {
	__u32 state; /* of the xorshift, never 0 */
	__u32 mask, prefix; /* next source = prefix | (state & mask), in host order */
	__u32 spare[29];
} __attribute__((aligned(128)));

/* What a replay saw of one operation. */
struct replayed {
	__u32 action, length;
	__u8 packet[LB_REPLAY_BYTES];
};

#endif
