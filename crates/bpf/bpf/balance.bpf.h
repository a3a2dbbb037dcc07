/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * balance: the load balancer's maps and its datapath, from the Ethernet header to the
 * action's counter. It knows nothing of being timed.
 *
 * Source of the design: study 002 and the Katran load balancer; the steps are numbered as
 * * in docs/experiments/xdp-lb.md.
 */
#ifndef BALANCE_BPF_H
#define BALANCE_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "jhash.h"
#include "xdp_lb.h"

#define IP_FRAGMENT_BITS 0x3fff /* more fragments, or an offset */
#define IPV6_FRAGMENT	 44
#define HOP_LIMIT	 64
#define OUTER_V4_PREFIX	 4268 /* 172.16, as stored */
#define OUTER_V6_PREFIX	 1 /* 0100::/64, as stored */
#define ONE_SECOND_NS	 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LB_VIPS);
	__type(key, struct vip_key);
	__type(value, struct vip);
} vips SEC(".maps");

struct lru_table {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LB_LRU_ENTRIES);
	__type(key, struct flow_key);
	__type(value, struct lru_entry);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LB_MAX_CPUS);
	__type(key, __u32);
	__array(values, struct lru_table);
} lru_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LB_RINGS *LB_RING_SIZE);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LB_REALS);
	__type(key, __u32);
	__type(value, struct real);
} reals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_VIPS);
	__type(key, __u32);
	__type(value, struct traffic);
} vip_traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_REALS);
	__type(key, __u32);
	__type(value, struct traffic);
} real_traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_REALS);
	__type(key, __u32);
	__type(value, __u64);
} real_misses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, XDP_REDIRECT + 1);
	__type(key, __u32);
	__type(value, __u64);
} actions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood);
} floods SEC(".maps");

/* Keys and values of maps, so that user space finds them in this object's BTF. Not used. */
struct map_types {
	struct flow_key flow_key;
	struct lru_entry lru_entry;
	struct vip_key vip_key;
	struct vip vip;
	struct real real;
	struct control control;
	struct traffic traffic;
	struct flood flood;
	struct replayed replayed;
} map_types;

/* What was parsed of a packet. */
struct packet {
	struct flow_key flow;
	__u16 bytes; /* of the IP packet */
	__u8 tos;
	_Bool ipv6, syn, rst;
};

/*
 * Deliberate faults: each makes a wrong datapath that validation must catch. The argument is a
 * constant wherever it is passed: the right datapath holds no trace of it.
 */
enum fault {
	FAULT_NONE,
	FAULT_OUTER_BYTE, /* a wrong byte in the outer header */
	FAULT_NO_COUNTER, /* a forgotten counter */
	FAULT_UDP_EXPIRED, /* every UDP entry counts as expired */
	FAULT_RING_SLOT, /* the slot beside the right one */
	FAULT_NO_FLOOD_CHECK, /* new connections are not counted */
};

static __always_inline void count(void *map, __u32 index)
{
	__u64 *value = bpf_map_lookup_elem(map, &index);

	if (value)
		*value += 1;
}

static __always_inline void count_traffic(void *map, __u32 index, __u16 bytes)
{
	struct traffic *traffic = bpf_map_lookup_elem(map, &index);

	if (traffic) {
		traffic->packets += 1;
		traffic->bytes += bytes;
	}
}

/* Step 2. Returns whether the packet can be balanced: TCP or UDP, with its ports in it. */
static __always_inline _Bool parse_l4(struct packet *packet, void *l4, void *end)
{
	if (packet->flow.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return 0;
		packet->syn = tcp->syn;
		packet->rst = tcp->rst;
		packet->flow.source_port = tcp->source;
		packet->flow.destination_port = tcp->dest;
		return 1;
	}
	if (packet->flow.protocol == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end)
			return 0;
		packet->flow.source_port = udp->source;
		packet->flow.destination_port = udp->dest;
		return 1;
	}
	return 0;
}

/* Steps 1 and 2. Returns XDP_TX where the packet goes on, else the action. */
static __always_inline int parse(struct xdp_md *ctx, struct packet *packet)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	void *l4;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		if (ip->ihl != 5 || ip->frag_off & bpf_htons(IP_FRAGMENT_BITS))
			return XDP_DROP;
		packet->flow.source.word[0] = ip->saddr;
		packet->flow.destination.word[0] = ip->daddr;
		packet->flow.protocol = ip->protocol;
		packet->bytes = bpf_ntohs(ip->tot_len);
		packet->tos = ip->tos;
		l4 = ip + 1;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = (void *)(eth + 1);

		if ((void *)(ip6 + 1) > end)
			return XDP_DROP;
		if (ip6->nexthdr == IPV6_FRAGMENT)
			return XDP_DROP;
		__builtin_memcpy(&packet->flow.source, &ip6->saddr, sizeof(struct address));
		__builtin_memcpy(&packet->flow.destination, &ip6->daddr, sizeof(struct address));
		packet->flow.protocol = ip6->nexthdr;
		packet->bytes = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		packet->tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
		packet->ipv6 = 1;
		l4 = ip6 + 1;
	} else {
		return XDP_PASS;
	}
	return parse_l4(packet, l4, end) ? XDP_TX : XDP_PASS;
}

/* Step 5. The real of a known flow, or -1. */
static __always_inline long known_real(void *lru, const struct packet *packet, enum fault fault)
{
	struct lru_entry *entry = bpf_map_lookup_elem(lru, &packet->flow);

	if (!entry)
		return -1;
	if (packet->flow.protocol == IPPROTO_UDP) {
		__u64 now = bpf_ktime_get_ns();

		if (fault == FAULT_UDP_EXPIRED || now - entry->last_use_ns > LB_UDP_LIFETIME_NS)
			return -1;
		entry->last_use_ns = now;
	}
	return entry->real;
}

/* Whether this CPU sees more new connections in this second than it should remember. */
static __always_inline _Bool is_flood(__u64 now)
{
	struct flood *flood = bpf_map_lookup_elem(&floods, &(__u32){ 0 });

	if (!flood)
		return 1;
	if (now - flood->second_start_ns > ONE_SECOND_NS) {
		flood->second_start_ns = now;
		flood->connections = 1;
		return 0;
	}
	flood->connections += 1;
	return flood->connections > LB_FLOOD_LIMIT;
}

static __always_inline __u32 hash_flow(const struct packet *packet)
{
	__u32 source = packet->flow.source.word[0];
	__u32 ports = packet->flow.source_port | (__u32)packet->flow.destination_port << 16;

	if (packet->ipv6)
		source = jhash_4words(packet->flow.source.word, LB_RINGS);
	return jhash_2words(source, ports, LB_RING_SIZE);
}

/* Step 6. Picks the real of a flow from the ring of its VIP and remembers it; -1 on none. */
static __always_inline long new_real(void *lru, const struct packet *packet, const struct vip *vip,
				     const struct control *settings, enum fault fault)
{
	struct lru_entry entry = {};
	__u64 now = bpf_ktime_get_ns();
	_Bool flooded;
	__u32 slot, *real;

	count(&counters, LB_LRU_MISSES);
	if (packet->flow.protocol == IPPROTO_TCP)
		count(&counters, LB_TCP_MISSES);
	flooded = fault != FAULT_NO_FLOOD_CHECK && is_flood(now);
	if (flooded)
		count(&counters, LB_FLOODS);
	slot = hash_flow(packet) % LB_RING_SIZE;
	if (fault == FAULT_RING_SLOT)
		slot = slot ? slot - 1 : LB_RING_SIZE - 1;
	slot += LB_RING_SIZE * vip->number;
	real = bpf_map_lookup_elem(&rings, &slot);
	if (!real)
		return -1;
	entry.real = *real;
	if (packet->flow.protocol == IPPROTO_UDP)
		entry.last_use_ns = now;
	if (!(vip->flags & LB_VIP_BYPASS_LRU) && !flooded && !packet->rst)
		bpf_map_update_elem(lru, &packet->flow, &entry, BPF_ANY);
	if (vip->number == settings->watched_vip)
		count(&real_misses, entry.real);
	return entry.real;
}

static __always_inline __u16 ipv4_checksum(const struct iphdr *ip)
{
	const __u16 *word = (const void *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Writes the Ethernet header of an outgoing packet: back through the router. */
static __always_inline void write_ethernet(struct ethhdr *eth, const struct ethhdr *old,
					   const struct control *settings, __u16 protocol)
{
	__builtin_memcpy(eth->h_source, old->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, settings->router_mac, ETH_ALEN);
	eth->h_proto = bpf_htons(protocol);
}

/* Step 8 with an IPv4 real: 20 bytes in front. */
static __always_inline int encapsulate_v4(struct xdp_md *ctx, const struct packet *packet,
					  const struct real *real, const struct control *settings,
					  enum fault fault)
{
	__u32 suffix = ((__u32)bpf_ntohs(packet->flow.source_port) << 16) ^
		       packet->flow.source.word[0];
	struct ethhdr *eth, *old;
	struct iphdr *ip;
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	ip = (void *)(eth + 1);
	old = data + sizeof(*ip);
	if ((void *)(ip + 1) > end || (void *)(old + 1) > end)
		return XDP_DROP;
	write_ethernet(eth, old, settings, ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = packet->tos;
	ip->tot_len = bpf_htons(packet->bytes + sizeof(*ip));
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = fault == FAULT_OUTER_BYTE ? HOP_LIMIT - 1 : HOP_LIMIT;
	ip->protocol = IPPROTO_IPIP;
	ip->check = 0;
	ip->saddr = (suffix & 0xffff0000) | OUTER_V4_PREFIX;
	ip->daddr = real->address.word[0];
	ip->check = ipv4_checksum(ip);
	return XDP_TX;
}

/* Step 8 with an IPv6 real: 40 bytes in front. */
static __always_inline int encapsulate_v6(struct xdp_md *ctx, const struct packet *packet,
					  const struct real *real, const struct control *settings)
{
	__u32 source = packet->flow.source.word[packet->ipv6 ? 3 : 0];
	struct ethhdr *eth, *old;
	struct ipv6hdr *ip6;
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip6)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	ip6 = (void *)(eth + 1);
	old = data + sizeof(*ip6);
	if ((void *)(ip6 + 1) > end || (void *)(old + 1) > end)
		return XDP_DROP;
	write_ethernet(eth, old, settings, ETH_P_IPV6);
	ip6->version = 6;
	ip6->priority = packet->tos >> 4;
	ip6->flow_lbl[0] = packet->tos << 4;
	ip6->flow_lbl[1] = 0;
	ip6->flow_lbl[2] = 0;
	ip6->payload_len = bpf_htons(packet->bytes);
	ip6->nexthdr = packet->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	ip6->hop_limit = HOP_LIMIT;
	ip6->saddr.s6_addr32[0] = OUTER_V6_PREFIX;
	ip6->saddr.s6_addr32[1] = 0;
	ip6->saddr.s6_addr32[2] = 0;
	ip6->saddr.s6_addr32[3] = source ^ packet->flow.source_port;
	__builtin_memcpy(&ip6->daddr, &real->address, sizeof(struct address));
	return XDP_TX;
}

/* Steps 3 to 8: a packet with ports. Returns the action. */
static __always_inline int forward(struct xdp_md *ctx, struct packet *packet, enum fault fault)
{
	__u32 cpu = bpf_get_smp_processor_id(), index;
	struct control *settings;
	struct vip_key key = {};
	struct real *real;
	struct vip *vip;
	long number = -1;
	void *lru;

	key.address = packet->flow.destination;
	key.port = packet->flow.destination_port;
	key.protocol = packet->flow.protocol;
	vip = bpf_map_lookup_elem(&vips, &key);
	if (!vip)
		return XDP_PASS;
	settings = bpf_map_lookup_elem(&control, &(__u32){ 0 });
	lru = bpf_map_lookup_elem(&lru_tables, &cpu);
	if (!settings || !lru)
		return XDP_DROP;
	if (fault != FAULT_NO_COUNTER)
		count(&counters, LB_VIP_PACKETS);

	if (!(vip->flags & LB_VIP_BYPASS_LRU) && !packet->syn)
		number = known_real(lru, packet, fault);
	if (number < 0)
		number = new_real(lru, packet, vip, settings, fault);
	if (number < 0)
		return XDP_DROP;
	index = number;
	real = bpf_map_lookup_elem(&reals, &index);
	if (!real)
		return XDP_DROP;

	count_traffic(&vip_traffic, vip->number, packet->bytes);
	count_traffic(&real_traffic, index, packet->bytes);
	if (real->flags & LB_REAL_IPV6)
		return encapsulate_v6(ctx, packet, real, settings);
	if (packet->ipv6)
		return XDP_DROP; /* IPv6 in IPv4 is not offered */
	return encapsulate_v4(ctx, packet, real, settings, fault);
}

static __always_inline int balance(struct xdp_md *ctx, enum fault fault)
{
	struct packet packet = {};
	int action = parse(ctx, &packet);

	if (action == XDP_TX)
		action = forward(ctx, &packet, fault);
	count(&actions, action); /* step 9 */
	return action;
}

#endif
