/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* unwind_rules: one step of unwind.bpf.h, from a frame to its caller by the rule that holds there. */
#ifndef UNWIND_RULES_BPF_H
#define UNWIND_RULES_BPF_H

#include <bpf/bpf_core_read.h>

#include "unwind_maps.bpf.h"

/* A type of the kernel that begins with a word. */
struct pt_regs___unwind {
	unsigned long r15;
};

/* Offsets in pt_regs of x86-64, which is an ABI: ptrace's. */
#define UNWIND_REGS_R13 0x10
#define UNWIND_REGS_BP	0x20
#define UNWIND_REGS_R10 0x38
#define UNWIND_REGS_DX	0x60
#define UNWIND_REGS_DI	0x70
#define UNWIND_REGS_IP	0x80
#define UNWIND_REGS_CS	0x88
#define UNWIND_REGS_SP	0x98

/* Since Linux 6.2. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

static __always_inline _Bool unwind_loads_are_checked(void)
{
	return bpf_ksym_exists(bpf_rdonly_cast);
}

/*
 * A word of kernel memory; 0 where there is none. The cast is a move, and the load one that the kernel lets fault
 * (8 instructions with its check); a helper's call takes 70.
 */
static __always_inline __u64 unwind_load(__u64 address)
{
	if (unwind_loads_are_checked()) {
		__u32 type = bpf_core_type_id_kernel(struct pt_regs___unwind);

		return *(__u64 *)bpf_rdonly_cast((const void *)address, type);
	} else {
		__u64 word = 0;

		bpf_probe_read_kernel(&word, sizeof(word), (const void *)address);
		return word;
	}
}

static __always_inline struct unwind_state *unwind_state(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&unwind_states, &key);
}

union unwind_packed_rule {
	struct unwind_rule rule;
	__u64 word;
};

/* The rule of generated code, which keeps frame pointers. */
static __always_inline __u64 unwind_generated_rule(void)
{
	union unwind_packed_rule packed = { .rule = {
						    .kind = UNWIND_CALL,
						    .sp = UNWIND_BP,
						    .sp_offset = 16,
						    .bp = UNWIND_BP_SAVED,
						    .bp_offset = -16,
					    } };

	return packed.word;
}

/* The rule that holds at an instruction, packed; 0 where there is none. */
__noinline __u64 unwind_rule_at(__u64 ip)
{
	struct unwind_state *state = unwind_state();
	struct unwind_range *range;
	struct unwind_place *place;
	union unwind_packed_rule packed = {};
	struct unwind_rule *rule;
	__u32 low = 0, high, middle, *first, *last;
	__u64 offset;

	if (!state)
		return 0;
	offset = ip - state->base;
	if (ip < state->base || ip >= UNWIND_TEXT_END || offset >> 32)
		return 0;
	high = state->ranges;
	for (int i = 0; i < 11 && low + 1 < high; i++) {
		middle = (low + high) / 2;
		range = bpf_map_lookup_elem(&unwind_ranges, &middle);
		if (!range)
			return 0;
		if (range->start <= offset)
			low = middle;
		else
			high = middle;
	}
	range = bpf_map_lookup_elem(&unwind_ranges, &low);
	if (!range)
		return 0;
	if (offset < range->start || offset >= range->end)
		return ip >= state->generated ? unwind_generated_rule() : 0;
	middle = range->first_block + ((offset - range->start) >> UNWIND_BLOCK_SHIFT);
	first = bpf_map_lookup_elem(&unwind_blocks, &middle);
	middle++;
	last = bpf_map_lookup_elem(&unwind_blocks, &middle);
	if (!first || !last)
		return 0;
	low = *first;
	high = *last + 1;
	for (int i = 0; i < 10 && low + 1 < high; i++) {
		middle = (low + high) / 2;
		place = bpf_map_lookup_elem(&unwind_places, &middle);
		if (!place)
			return 0;
		if (place->offset <= offset)
			low = middle;
		else
			high = middle;
	}
	place = bpf_map_lookup_elem(&unwind_places, &low);
	if (!place || place->offset > offset)
		return 0;
	rule = bpf_map_lookup_elem(&unwind_rules, &place->rule);
	if (!rule)
		return 0;
	packed.rule = *rule;
	return packed.word;
}

/* Whether the caller's slot is at a distance that the rule alone knows, and its rbp in memory or untouched. */
static __always_inline _Bool unwind_plain(const struct unwind_rule *rule)
{
	return rule->kind == UNWIND_CALL && rule->sp == UNWIND_SP &&
	       rule->bp != UNWIND_BP_CHAINED && rule->sp_offset > 0;
}

/* Where rbp is saved once a plain rule was followed. */
static __always_inline __s32 unwind_plain_bp(const struct unwind_rule *rule, __s32 bp_place)
{
	if (rule->bp == UNWIND_BP_SAVED)
		return rule->bp_offset + 8;
	return bp_place == UNWIND_BP_KEPT ? bp_place : bp_place - rule->sp_offset;
}

/* Where the registers of interrupted code have the one that a rule names. */
static __always_inline __u64 unwind_register(__u8 sp)
{
	if (sp == UNWIND_R10)
		return UNWIND_REGS_R10;
	if (sp == UNWIND_R13)
		return UNWIND_REGS_R13;
	return sp == UNWIND_DX ? UNWIND_REGS_DX : UNWIND_REGS_DI;
}

/*
 * Whether a caller's slot is no further than that of its callee, on the same stack: such frames would be walked for ever.
 * Another stack may be anywhere.
 */
static __always_inline _Bool unwind_goes_back(__u64 slot, __u64 to)
{
	return slot - to < UNWIND_STACK_BYTES;
}

/* Goes from a frame to its caller; but for the rule, which is to be looked up then. Returns 0, or why it can't. */
static __always_inline int unwind_caller(struct unwind_at *at)
{
	struct unwind_rule rule = at->rule;
	__u64 sp = at->slot + 8, bp;

	if (unwind_plain(&rule)) {
		at->regs = 0;
		at->bp_place = unwind_plain_bp(&rule, at->bp_place);
		at->slot += rule.sp_offset;
		at->ip = unwind_load(at->slot);
		return 0;
	}
	if (rule.kind == UNWIND_END)
		return UNWIND_WHOLE;
	if (rule.kind == UNWIND_NO_TEXT || rule.kind == UNWIND_UNKNOWN || rule.kind == UNWIND_START)
		return UNWIND_LOST;
	bp = at->bp_place == UNWIND_BP_KEPT ? at->bp : unwind_load(at->slot + at->bp_place);
	if (rule.sp == UNWIND_SP)
		sp += rule.sp_offset;
	else if (rule.sp == UNWIND_BP)
		sp = bp + rule.sp_offset;
	else if (rule.sp == UNWIND_SP_INDIRECT)
		sp = unwind_load(sp) + rule.sp_offset;
	else if (rule.sp == UNWIND_BP_INDIRECT)
		sp = unwind_load(bp + rule.sp_offset);
	else if (rule.sp != UNWIND_SP_OTHER && at->regs)
		sp = unwind_load(at->regs + unwind_register(rule.sp)) + rule.sp_offset;
	else
		return UNWIND_LOST;
	at->bp = bp;
	at->regs = 0;
	at->bp_place = UNWIND_BP_KEPT;
	if (rule.kind == UNWIND_CALL) {
		if (rule.sp == UNWIND_BP && unwind_goes_back(at->slot, sp - 8))
			return UNWIND_LOST;
		if (rule.bp == UNWIND_BP_SAVED)
			at->bp_place = rule.bp_offset + 8;
		else if (rule.bp == UNWIND_BP_CHAINED)
			at->bp = unwind_load(bp + rule.bp_offset);
		at->slot = sp - 8;
		at->ip = unwind_load(at->slot);
		return 0;
	}
	if (rule.kind == UNWIND_REGS) {
		at->regs = sp;
		at->bp = unwind_load(sp + UNWIND_REGS_BP);
		sp += UNWIND_REGS_IP;
	}
	/* Both kinds of registers end alike. */
	if (unwind_load(sp + UNWIND_REGS_CS - UNWIND_REGS_IP) & 3)
		return UNWIND_WHOLE;
	at->ip = unwind_load(sp);
	at->slot = unwind_load(sp + UNWIND_REGS_SP - UNWIND_REGS_IP) - 8;
	return 0;
}

/* Looks up the rule of the frame that a walk has come to from one with `rule`. Returns 0, or why there is none. */
static __always_inline int unwind_look_up(struct unwind_at *at, const struct unwind_rule *rule)
{
	union unwind_packed_rule packed = {
		.word = unwind_rule_at(rule->exact ? at->ip : at->ip - 1),
	};

	at->rule = packed.rule;
	return at->rule.kind == UNWIND_NO_TEXT ? UNWIND_LOST : 0;
}

#endif
