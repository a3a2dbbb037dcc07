// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_skb: the drivers of programs on an skb: tc and tcx, cgroup_skb, socket filters (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Words of a state: some fields share one, the second in its upper half. */
enum {
	LENGTH,
	MARKS, /* mark, priority */
	QUEUES, /* tc_index and pkt_type, queue_mapping */
	VLAN, /* vlan_tci, vlan_present */
	TSTAMP,
	CLASSES, /* tc_classid, hash */
	CB
};
#define CB_WORDS       5
#define PKT_TYPE_SHIFT 16

/* Whether a run makes packets longer or shorter at their end. */
const volatile __u32 program_tail;

PROGRAM_TARGET(struct __sk_buff *ctx)

static __always_inline __u64 pair(__u32 lower, __u32 upper)
{
	return lower | (__u64)upper << 32;
}

/* What programs of all these types may read. */
static __always_inline void see_common(struct __sk_buff *skb, struct program_state *state)
{
	__u64 *words = state->words;

	words[LENGTH] = skb->len;
	words[MARKS] = pair(skb->mark, skb->priority);
	words[QUEUES] = pair(skb->tc_index | skb->pkt_type << PKT_TYPE_SHIFT, skb->queue_mapping);
	words[VLAN] = pair(skb->vlan_tci, skb->vlan_present);
	words[CLASSES] = pair(0, skb->hash);
	for (int i = 0; i < CB_WORDS; i++)
		words[CB + i] = skb->cb[i];
}

static __always_inline void see_timed(struct __sk_buff *skb, struct program_state *state)
{
	see_common(skb, state);
	state->words[TSTAMP] = skb->tstamp;
}

static __always_inline void see_packet(struct __sk_buff *skb, struct program_state *state)
{
	see_timed(skb, state);
	state->words[CLASSES] = pair(skb->tc_classid, skb->hash);
}

/* What programs of all these types may write. */
static __always_inline void restore_cb(struct __sk_buff *skb)
{
	for (int i = 0; i < CB_WORDS; i++)
		skb->cb[i] = program_start.words[CB + i];
}

static __always_inline void restore_marks(struct __sk_buff *skb)
{
	restore_cb(skb);
	skb->mark = program_start.words[MARKS];
	skb->priority = program_start.words[MARKS] >> 32;
	skb->tstamp = program_start.words[TSTAMP];
}

static __always_inline void restore_packet(struct __sk_buff *skb)
{
	__u64 bytes, queues = program_start.words[QUEUES];
	struct program_input *next;
	__u8 *packet = program_packet;
	_Bool half;
	__s32 longer;

	restore_marks(skb);
	skb->tc_index = (__u16)queues;
	skb->queue_mapping = queues >> 32;
	skb->tc_classid = program_start.words[CLASSES];
	if (skb->hash) /* of a test run, it has none at first */
		bpf_set_hash_invalid(skb);
	if (skb->pkt_type != (__u16)(queues >> PKT_TYPE_SHIFT))
		bpf_skb_change_type(skb, (__u16)(queues >> PKT_TYPE_SHIFT));
	if (skb->vlan_present && !(program_start.words[VLAN] >> 32))
		bpf_skb_vlan_pop(skb);
	if (program_restore != RESTORE_ALL)
		return;
	half = program_half();
	if (program_turns) {
		/* What the run changed; on the way to the next packet, a second reset finds nothing of it. */
		longer = skb->len - *(volatile __u64 *)&program_start.words[LENGTH];
		if (longer && !program_tail && program_is_first(half))
			bpf_skb_adjust_room(skb, -longer, BPF_ADJ_ROOM_MAC, 0);
		next = program_next(half);
		if (!next)
			return;
		packet = next->bytes;
		*(volatile __u64 *)&program_start.words[LENGTH] = next->length;
	}
	program_now.words[LENGTH] = skb->len;
	longer = skb->len - *(volatile __u64 *)&program_start.words[LENGTH];
	if (half)
		longer >>= 1;
	if (longer && (program_tail || program_turns ||
		       bpf_skb_adjust_room(skb, -longer, BPF_ADJ_ROOM_MAC, 0)))
		bpf_skb_change_tail(skb, skb->len - longer, 0);
	bytes = program_bytes();
	/* On half the way it may be shorter. */
	if (half && bytes > skb->len)
		bytes = skb->len & (PROGRAM_PACKET_BYTES - 1);
	if (bytes >= PROGRAM_LEAST_BYTES)
		bpf_skb_store_bytes(skb, 0, packet, bytes, 0);
}

PROGRAM_DRIVER("tc", program_tc, struct __sk_buff, see_packet, restore_packet)
PROGRAM_DRIVER("cgroup_skb/ingress", program_cgroup_skb, struct __sk_buff, see_timed, restore_marks)
PROGRAM_DRIVER("socket", program_socket, struct __sk_buff, see_common, restore_cb)
