// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs on an skb. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("tc")
int ok(struct __sk_buff *skb)
{
	return TC_ACT_OK;
}

SEC("tcx/ingress")
int mark(struct __sk_buff *skb)
{
	int is_marked = skb->mark || skb->priority || skb->tc_index;

	for (int i = 0; i < 5; i++) {
		is_marked |= skb->cb[i];
		skb->cb[i] = 9;
	}
	skb->mark = 7;
	skb->priority = 8;
	skb->tc_index = 9;
	return is_marked ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int push_vlan(struct __sk_buff *skb)
{
	if (skb->vlan_present)
		return TC_ACT_SHOT;
	return bpf_skb_vlan_push(skb, 0, 5) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int encapsulate(struct __sk_buff *skb)
{
	__u32 before = skb->len;

	if (bpf_skb_adjust_room(skb, 20, BPF_ADJ_ROOM_MAC, 0))
		return TC_ACT_SHOT;
	return skb->len == before + 20 ? TC_ACT_OK : TC_ACT_SHOT;
}

SEC("tc")
int lengthen(struct __sk_buff *skb)
{
	return bpf_skb_change_tail(skb, skb->len + 30, 0) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* To more than a page. */
SEC("tc")
int lengthen_much(struct __sk_buff *skb)
{
	return bpf_skb_change_tail(skb, skb->len + 5000, 0) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int write_byte(struct __sk_buff *skb)
{
	__u8 byte;

	if (bpf_skb_load_bytes(skb, 40, &byte, 1))
		return TC_ACT_SHOT;
	byte++;
	bpf_skb_store_bytes(skb, 40, &byte, 1, 0);
	return byte;
}

SEC("tc")
int set_fields(struct __sk_buff *skb)
{
	int is_set = skb->tc_classid || skb->queue_mapping || skb->tstamp;

	skb->tc_classid = 5;
	skb->queue_mapping = 6;
	skb->tstamp = 7;
	return is_set ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int hash_anew(struct __sk_buff *skb)
{
	if (skb->hash)
		return TC_ACT_SHOT;
	return bpf_get_hash_recalc(skb) ? TC_ACT_OK : TC_ACT_SHOT;
}

SEC("tc")
int change_type(struct __sk_buff *skb)
{
	if (skb->pkt_type == 1)
		return TC_ACT_SHOT;
	return bpf_skb_change_type(skb, 1) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int set_kind_of_time(struct __sk_buff *skb)
{
	return bpf_skb_set_tstamp(skb, 7, BPF_SKB_TSTAMP_DELIVERY_MONO) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("cgroup_skb/egress")
int set_time(struct __sk_buff *skb)
{
	int is_set = skb->tstamp != 0;

	skb->tstamp = 7;
	return !is_set;
}

SEC("cgroup_skb/ingress")
int allow_ingress(struct __sk_buff *skb)
{
	int is_marked = skb->mark != 0;

	skb->mark = 3;
	return !is_marked;
}

SEC("cgroup_skb/egress")
int allow_egress(struct __sk_buff *skb)
{
	return 3;
}

SEC("socket")
int keep_half(struct __sk_buff *skb)
{
	return skb->len / 2;
}
