// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_skb: the drivers of programs on an skb: tc and tcx, cgroup_skb, socket filters (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Words of a state. */
enum {
	LENGTH,
	MARK,
	PRIORITY,
	TC_INDEX,
	VLAN_PRESENT,
	VLAN_TCI,
	CB
};
#define CB_WORDS 5

/* Whether a run makes packets longer or shorter at their end. */
const volatile __u32 program_tail;

PROGRAM_TARGET(struct __sk_buff *ctx)

static __always_inline void see(struct __sk_buff *skb, struct program_state *state)
{
	state->words[LENGTH] = skb->len;
	state->words[MARK] = skb->mark;
	state->words[PRIORITY] = skb->priority;
	state->words[TC_INDEX] = skb->tc_index;
	state->words[VLAN_PRESENT] = skb->vlan_present;
	state->words[VLAN_TCI] = skb->vlan_tci;
	for (int i = 0; i < CB_WORDS; i++)
		state->words[CB + i] = skb->cb[i];
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
	skb->mark = program_start.words[MARK];
	skb->priority = program_start.words[PRIORITY];
}

static __always_inline void restore_packet(struct __sk_buff *skb)
{
	__u64 bytes;
	__s32 longer;

	restore_marks(skb);
	skb->tc_index = program_start.words[TC_INDEX];
	if (skb->vlan_present && !program_start.words[VLAN_PRESENT])
		bpf_skb_vlan_pop(skb);
	if (program_restore != RESTORE_ALL)
		return;
	program_now.words[LENGTH] = skb->len;
	longer = skb->len - program_start.words[LENGTH];
	if (program_half())
		longer >>= 1;
	if (longer && (program_tail || bpf_skb_adjust_room(skb, -longer, BPF_ADJ_ROOM_MAC, 0)))
		bpf_skb_change_tail(skb, skb->len - longer, 0);
	bytes = program_bytes();
	if (bytes >= PROGRAM_LEAST_BYTES)
		bpf_skb_store_bytes(skb, 0, program_packet, bytes, 0);
}

PROGRAM_DRIVER("tc", program_tc, struct __sk_buff, see, restore_packet)
PROGRAM_DRIVER("cgroup_skb/ingress", program_cgroup_skb, struct __sk_buff, see, restore_marks)
PROGRAM_DRIVER("socket", program_socket, struct __sk_buff, see, restore_cb)
