/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind: kernel stacks without bpf_get_stack(), at a tenth of its cost or less.
 *
 * A program takes the stack that it runs on with unwind_count(), which returns the stack's leaf, or with
 * unwind_frames(), which writes return addresses:
 *
 *	SEC("raw_tp/sched_switch")
 *	int on_switch(void *ctx)
 *	{
 *		unwind_count(unwind_here(), 32);
 *		return 0;
 *	}
 *
 * User space fills the maps `unwind_*` before the program is attached, and reads the stacks from `unwind_nodes`
 * (crates/bpf/src/unwind). docs/unwind.md describes both for other loaders.
 *
 * How it walks. A *rule* says how to get from a frame to its caller: ORC's table of the kernel has one for each
 * instruction. Looking a rule up takes a search in two tables, so it is done once for each *context* (a return address
 * and the path that led to it), and kept in a tree of nodes. Each node knows how far its caller's return address is
 * from its own, and which child came last. So a frame that was seen before takes two loads, an addition and a
 * comparison. A stack is a path of the tree; its leaf holds how often it came.
 *
 * The start is the frame of the program itself, or registers. The rules lead from an interrupt's stack to the task's,
 * as they do in the kernel. What can't be followed is counted (struct unwind_state), never guessed.
 */
#ifndef UNWIND_BPF_H
#define UNWIND_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* The longest stack. */
#define UNWIND_DEPTH 128

/* Room for contexts, 64 bytes each; a power of two. A distinct stack takes some ten of them. */
#ifndef UNWIND_NODES
#define UNWIND_NODES 65536
#endif

/* Most entries of the rule table, blocks of its index, distinct rules, and ranges of text. */
#define UNWIND_PLACES	   (1 << 21)
#define UNWIND_BLOCKS	   (1 << 19)
#define UNWIND_RULES	   8192
#define UNWIND_RANGES	   1024
/* Each block of text has so many bytes, as a shift. */
#define UNWIND_BLOCK_SHIFT 8

/* No stack of the kernel is larger: 16 KiB, four times that with KASAN. */
#define UNWIND_STACK_BYTES (1 << 16)

/* What to look for in the hash table of children before giving up. */
#define UNWIND_PROBES 32

/* What a frame's rule says that its caller left. */
enum unwind_kind {
	UNWIND_NO_TEXT = 0, /* it is no address of the kernel's code */
	UNWIND_CALL = 1, /* a return address */
	UNWIND_REGS = 2, /* struct pt_regs */
	UNWIND_IRET = 3, /* the last five words of struct pt_regs */
	UNWIND_END = 4, /* nothing: the stack ends */
	UNWIND_START = 5, /* the root of stacks that begin with registers */
	UNWIND_UNKNOWN = 6, /* code without a rule: retpolines, for example */
};

/* What the caller's stack pointer is computed from. */
enum unwind_sp {
	UNWIND_SP_OTHER = 0, /* a register that is never known */
	UNWIND_SP = 1, /* rsp + offset */
	UNWIND_BP = 2, /* rbp + offset */
	UNWIND_SP_INDIRECT = 3, /* *rsp + offset */
	UNWIND_BP_INDIRECT = 4, /* *(rbp + offset) */
	/* Where an interrupt came just before a frame was aligned: a register of the interrupted code + offset. */
	UNWIND_R10 = 5,
	UNWIND_R13 = 6,
	UNWIND_DX = 7,
	UNWIND_DI = 8,
};

/* Where the caller's rbp is. */
enum unwind_bp {
	UNWIND_BP_SAME = 0, /* in rbp still */
	UNWIND_BP_SAVED = 1, /* at the caller's rsp + offset */
	UNWIND_BP_CHAINED = 2, /* at rbp + offset */
};

struct unwind_rule {
	__s16 sp_offset;
	__s16 bp_offset;
	__u8 sp; /* of enum unwind_sp */
	__u8 bp; /* of enum unwind_bp */
	__u8 kind; /* of enum unwind_kind */
	__u8 exact; /* the caller's address is an interrupted instruction, not a return address */
};

/* A context: an address, and the path to it. */
struct unwind_node {
	__u64 ip; /* where the frame will go on; 0 in the roots */
	__u32 step; /* bytes from the slot of this frame's ip to its caller's; 0 where the rule has to be followed */
	__u32 next; /* the child that came last: bytes from the first node */
	__u32 parent; /* bytes from the first node */
	__s32 bp_place; /* where rbp is saved: bytes from the slot, or UNWIND_BP_KEPT */
	struct unwind_rule rule;
	__u32 next_turn; /* as `next`, where the rule has to be followed */
	__u32 depth;
	__u64 count; /* stacks that end here */
	__u64 cut; /* of these: stacks that went on, but no node was left for the rest */
	__u32 turn; /* of enum unwind_turn_kind, where the rule has to be followed */
	__u32 spare;
};

/* Rules that the loop follows itself. All others are left to a function. */
enum unwind_turn_kind {
	UNWIND_TURN_OTHER = 0,
	UNWIND_TURN_BP = 1, /* a return address, at rbp + offset */
	UNWIND_TURN_SP =
		2, /* a return address, at *rsp + offset: from an interrupt's stack to that of the task */
	UNWIND_TURN_REGS =
		3, /* registers at rsp + offset; mostly those of user space, where a stack ends */
	UNWIND_TURN_FRAME = 4, /* a return address above the frame that the saved rbp points at */
};

/* The walk has rbp's value. */
#define UNWIND_BP_KEPT ((__s32)0x80000000)

/* The address that no frame has stands in node 0, which `next` names where nothing came yet. */
#define UNWIND_NODE_BYTES 64
#define UNWIND_NODES_MASK ((UNWIND_NODES - 1) * UNWIND_NODE_BYTES)

/* Why a walk ended. */
enum unwind_end {
	UNWIND_DEEP = 0, /* at the depth that was asked for */
	UNWIND_WHOLE = 1, /* at the end of the stack */
	UNWIND_LOST = 2, /* at an address without a rule, or a rule that can't be followed here */
	UNWIND_FULL = 3, /* no node was left */
};

/*
 * Where stacks begin. Stale ones have roots of their own: what lies at an address of a module is not known while modules
 * come and go.
 */
enum unwind_root {
	UNWIND_FRAME_ROOT = 0, /* at a frame */
	UNWIND_REGS_ROOT = 1, /* with registers */
	UNWIND_STALE = 2, /* added: while `changes` was not `known` */
};

/* An instruction and its rule: it holds up to the next entry. */
struct unwind_place {
	__u32 offset; /* from unwind_state.base */
	__u32 rule; /* in unwind_rules */
};

/* Text whose rules are known: the kernel's, its init text, modules. */
struct unwind_range {
	__u32 start; /* offsets from unwind_state.base */
	__u32 end;
	__u32 first_block;
	__u32 spare;
};

struct unwind_state {
	/* Written by user space. */
	__u64 base; /* lowest address of any text */
	__u64 generated; /* from here on, text may be generated: BPF programs and trampolines, with frame pointers */
	__u32 ranges;
	__u32 keeps_frames; /* whether the kernel keeps frame pointers */
	/* In one word, so that a walk sees both of one time. */
	__u32 known; /* the value of `changes` that the rules are of */
	__u32 roots; /* bytes from the first node to the first of four roots: enum unwind_root */
	/* Written by programs. */
	__u64 used; /* nodes */
	__u64 lost; /* stacks that ended as UNWIND_LOST */
	__u64 full; /* … as UNWIND_FULL */
	__u64 stale; /* stacks while `changes` was not `known` */
	__u32 changes; /* how often a module came or went; unwind_module_changed() */
	__u32 zero; /* always 0, which the verifier does not know */
};

struct unwind_all_nodes {
	struct unwind_node node[UNWIND_NODES];
};

struct unwind_all_children {
	__u32 child[2 * UNWIND_NODES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_all_nodes);
} unwind_nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_all_children);
} unwind_children SEC(".maps"); /* nodes by parent and address; 0: free */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_state);
} unwind_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_PLACES);
	__type(key, __u32);
	__type(value, struct unwind_place);
} unwind_places SEC(".maps"); /* sorted by range, then by offset */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_BLOCKS);
	__type(key, __u32);
	__type(value, __u32);
} unwind_blocks SEC(
	".maps"); /* the place that holds where a block of text begins; one more behind the last */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_RULES);
	__type(key, __u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_RANGES);
	__type(key, __u32);
	__type(value, struct unwind_range);
} unwind_ranges SEC(".maps"); /* sorted */

/* A stack as addresses, the innermost first. */
struct unwind_stack {
	__u32 depth;
	__u32 end; /* of enum unwind_end */
	__u64 ip[UNWIND_DEPTH];
};

/* Where a walk is: a frame, and all that it takes to go to its caller. */
struct unwind_at {
	__u64 slot; /* the address of the frame's ip */
	__u64 ip;
	__u64 bp; /* rbp's value in the frame, where bp_place is UNWIND_BP_KEPT */
	struct unwind_rule rule;
	__s32 bp_place;
	__u32 node; /* bytes from the first node; 0: the frame has none */
	__u32 end; /* of enum unwind_end */
	__u32 spare;
	__u64 regs; /* the registers of the frame, where it was interrupted; else 0 */
};

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

/*
 * A word of kernel memory; 0 where there is none. The cast is a move, and the load one that the kernel lets fault
 * (8 instructions with its check); a helper's call takes 70.
 */
static __always_inline __u64 unwind_load(__u64 address)
{
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
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

static __always_inline struct unwind_all_nodes *unwind_tree(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&unwind_nodes, &key);
}

static __always_inline struct unwind_node *unwind_node(struct unwind_all_nodes *nodes, __u32 bytes)
{
	return (void *)nodes + (bytes & UNWIND_NODES_MASK);
}

/*
 * The frame of the program that calls this: the address where it saved rbp. A number, not a pointer, for the
 * verifier. Only in a program, not in its functions; and a program with 64 bytes on its stack or more may have
 * its stack elsewhere (Linux 6.13), so it leaves those to functions.
 */
static __always_inline __u64 unwind_here(void)
{
	__u64 frame;

	asm volatile("%[frame] = r10\n"
		     "%[frame] = -%[frame]\n"
		     "%[frame] = -%[frame]\n"
		     : [frame] "=r"(frame));
	return frame;
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
	if (ip < state->base || offset >> 32)
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

static __always_inline __u32 unwind_turn_kind(const struct unwind_rule *rule, __s32 bp_place)
{
	if (rule->kind == UNWIND_REGS && rule->sp == UNWIND_SP)
		return UNWIND_TURN_REGS;
	if (rule->kind != UNWIND_CALL || rule->bp == UNWIND_BP_CHAINED)
		return UNWIND_TURN_OTHER;
	if (rule->sp == UNWIND_BP)
		return rule->sp_offset == 16 && bp_place == -8 ? UNWIND_TURN_FRAME : UNWIND_TURN_BP;
	return rule->sp == UNWIND_SP_INDIRECT ? UNWIND_TURN_SP : UNWIND_TURN_OTHER;
}

static __always_inline __u32 unwind_hash(__u32 parent, __u64 ip)
{
	__u64 key = (ip ^ ((__u64)parent << 20)) * 0x9e3779b97f4a7c15ULL;

	return key >> 32;
}

/* A node's child of this address: bytes from the first node, 0 where there is none yet. */
static __always_inline __u32 unwind_find(struct unwind_all_nodes *nodes,
					 struct unwind_all_children *children, __u32 parent,
					 __u64 ip)
{
	__u32 hash = unwind_hash(parent, ip);

	for (int i = 0; i < UNWIND_PROBES; i++) {
		__u32 bytes = children->child[(hash + i) & (2 * UNWIND_NODES - 1)];
		struct unwind_node *node = unwind_node(nodes, bytes);

		if (!bytes)
			return 0;
		if (node->ip == ip && node->parent == parent)
			return bytes;
	}
	return 0;
}

/* Makes a node of the frame that a walk is at. Returns its bytes from the first node, 0 where no room is left. */
static __always_inline __u32 unwind_insert(struct unwind_all_nodes *nodes,
					   struct unwind_all_children *children,
					   struct unwind_state *state, struct unwind_at *at,
					   struct unwind_node *parent, __u32 parent_bytes)
{
	__u32 hash = unwind_hash(parent_bytes, at->ip), bytes;
	struct unwind_node *node;
	__u64 index;

	if (state->used >= UNWIND_NODES)
		return 0;
	index = __sync_fetch_and_add(&state->used, 1);
	if (index >= UNWIND_NODES)
		return 0;
	bytes = index * UNWIND_NODE_BYTES;
	node = unwind_node(nodes, bytes);
	node->ip = at->ip;
	node->step = unwind_plain(&at->rule) ? at->rule.sp_offset : 0;
	node->next = 0;
	node->parent = parent_bytes;
	node->bp_place = at->bp_place;
	node->rule = at->rule;
	node->next_turn = 0;
	node->turn = unwind_turn_kind(&at->rule, at->bp_place);
	node->depth = parent->depth + 1;
	for (int i = 0; i < UNWIND_PROBES; i++) {
		__u32 *child = &children->child[(hash + i) & (2 * UNWIND_NODES - 1)];
		__u32 other = __sync_val_compare_and_swap(child, 0, bytes);
		struct unwind_node *twin = unwind_node(nodes, other);

		if (!other)
			return bytes;
		/* Another CPU was first. The node is lost, which costs 64 bytes. */
		if (twin->ip == at->ip && twin->parent == parent_bytes)
			return other;
	}
	return 0;
}

/*
 * Goes on where the tree did not know how: follows the rule of at->node where that is needed, and returns the child
 * that the caller is, a new one if it was never seen. 0: the walk ends, or has to go on without nodes (at->end).
 */
__noinline __u32 unwind_turn(struct unwind_at *at)
{
	struct unwind_all_nodes *nodes = unwind_tree();
	struct unwind_all_children *children;
	struct unwind_state *state;
	struct unwind_node *node, *child, *parent;
	struct unwind_rule rule;
	__u32 key = 0, bytes;

	if (!at || !nodes)
		return 0;
	node = unwind_node(nodes, at->node);
	rule = node->rule;
	if (node->step) {
		at->bp_place = unwind_plain_bp(&rule, node->bp_place);
	} else if (rule.kind == UNWIND_START) {
		at->bp_place = UNWIND_BP_KEPT;
	} else {
		/* Frames in between may have been walked without a look at `at`. */
		parent = unwind_node(nodes, node->parent);
		if (parent->rule.kind != UNWIND_REGS)
			at->regs = 0;
		at->rule = rule;
		at->bp_place = node->bp_place;
		at->end = unwind_caller(at);
		if (at->end)
			return 0;
		child = unwind_node(nodes, node->next_turn);
		if (child->ip == at->ip)
			return node->next_turn;
	}
	children = bpf_map_lookup_elem(&unwind_children, &key);
	state = unwind_state();
	if (!children || !state)
		return 0;
	bytes = unwind_find(nodes, children, at->node, at->ip);
	if (!bytes) {
		at->end = unwind_look_up(at, &rule);
		if (at->end)
			return 0;
		bytes = unwind_insert(nodes, children, state, at, node, at->node);
		if (!bytes) {
			at->end = UNWIND_FULL;
			return 0;
		}
	}
	if (node->step || rule.kind == UNWIND_START)
		node->next = bytes;
	else
		node->next_turn = bytes;
	return bytes;
}

/* One frame further without nodes. Returns 0, or why not. */
__noinline int unwind_step(struct unwind_at *at)
{
	struct unwind_rule rule;
	int end;

	if (!at)
		return UNWIND_LOST;
	rule = at->rule;
	end = unwind_caller(at);
	return end ? end : unwind_look_up(at, &rule);
}

/* What ended a walk is counted where it was not the stack's end. */
static __always_inline void unwind_note(struct unwind_state *state, __u32 end)
{
	if (end == UNWIND_LOST)
		__sync_fetch_and_add(&state->lost, 1);
	else if (end == UNWIND_FULL)
		__sync_fetch_and_add(&state->full, 1);
}

/* The root of a walk that begins now, as bytes from the first node. A stale walk is counted. */
static __always_inline __u32 unwind_root(struct unwind_state *state, _Bool from_regs)
{
	__u64 rules = *(volatile __u64 *)&state->known;
	__u32 root = (rules >> 32) +
		     (from_regs ? UNWIND_REGS_ROOT : UNWIND_FRAME_ROOT) * UNWIND_NODE_BYTES;

	if (state->changes == (__u32)rules)
		return root;
	__sync_fetch_and_add(&state->stale, 1);
	return root + UNWIND_STALE * UNWIND_NODE_BYTES;
}

/*
 * The loop, once for kernels that keep frame pointers and once for others. `stack` is where addresses go; where it is NULL, the stack is counted at its leaf. Returns the leaf: bytes
 * from the first node, with the reason of the end in the upper half.
 */
static __always_inline __u64 unwind_walk_in(_Bool keeps_frames, __u64 slot, __u64 ip, __u64 bp,
					    _Bool from_regs, __u32 depth,
					    struct unwind_stack *stack)
{
	struct unwind_all_nodes *nodes = unwind_tree();
	struct unwind_state *state = unwind_state();
	struct unwind_node *node, *child;
	/* What the loop seldom needs stays in memory: registers are short. */
	struct unwind_at at = { .bp = bp };
	__u64 turn, taken = 0;

	if (!nodes || !state)
		return 0;
	if (depth > UNWIND_DEPTH)
		depth = UNWIND_DEPTH;
	node = unwind_node(nodes, unwind_root(state, from_regs));
	/* To a constant: Linux before 6.8 does not see the end of a loop otherwise. */
	for (turn = UNWIND_DEPTH - depth; turn < UNWIND_DEPTH; turn++, taken++) {
		__u32 bytes;

		if (keeps_frames && node->turn == UNWIND_TURN_FRAME) {
			__u64 to = unwind_load(slot - 8) + 8;

			ip = unwind_load(to);
			child = unwind_node(nodes, node->next_turn);
			if (child->ip == ip && !unwind_goes_back(slot, to)) {
				slot = to;
				goto next;
			}
			goto turn;
		}
		slot += node->step;
		if (!from_regs || taken)
			ip = unwind_load(slot);
		child = unwind_node(nodes, node->next);
		if (child->ip == ip)
			goto next;
		if (node->turn == UNWIND_TURN_REGS) {
			__u64 sp = slot + 8 + node->rule.sp_offset;

			if (unwind_load(sp + UNWIND_REGS_CS) & 3) {
				at.end = UNWIND_WHOLE;
				break;
			}
		} else if (node->turn) {
			__u64 kept = node->bp_place == UNWIND_BP_KEPT ?
					     at.bp :
					     unwind_load(slot + node->bp_place);
			__u64 to = node->turn == UNWIND_TURN_SP ? unwind_load(slot + 8) : kept;

			to += node->rule.sp_offset - 8;
			ip = unwind_load(to);
			child = unwind_node(nodes, node->next_turn);
			if (child->ip == ip && !unwind_goes_back(slot, to)) {
				slot = to;
				at.bp = kept;
				goto next;
			}
		}
turn:
		at.slot = slot;
		at.ip = ip;
		at.node = (void *)node - (void *)nodes;
		bytes = unwind_turn(&at);
		if (!bytes)
			break;
		slot = at.slot;
		ip = at.ip;
		child = unwind_node(nodes, bytes);
next:
		node = child;
		if (stack)
			stack->ip[taken] = ip;
	}
	if (stack && at.end == UNWIND_FULL) {
		/* The frame that has no node is at `at`, with its rule. */
		for (; turn < UNWIND_DEPTH; turn++) {
			stack->ip[taken & (UNWIND_DEPTH - 1)] = at.ip;
			taken++;
			at.end = unwind_step(&at);
			if (at.end)
				break;
		}
	}
	if (stack) {
		stack->depth = taken;
		stack->end = at.end;
	}
	if (at.end == UNWIND_LOST || at.end == UNWIND_FULL)
		unwind_note(state, at.end);
	if (!stack) {
		__sync_fetch_and_add(&node->count, 1);
		if (at.end == UNWIND_FULL)
			__sync_fetch_and_add(&node->cut, 1);
	}
	return (__u64)at.end << 32 | (__u32)((void *)node - (void *)nodes);
}

static __always_inline __u64 unwind_walk(__u64 slot, __u64 ip, __u64 bp, _Bool from_regs,
					 __u32 depth, struct unwind_stack *stack)
{
	struct unwind_state *state = unwind_state();

	if (state && state->keeps_frames)
		return unwind_walk_in(1, slot, ip, bp, from_regs, depth, stack);
	return unwind_walk_in(0, slot, ip, bp, from_regs, depth, stack);
}

/*
 * Counts the stack that begins above a frame (unwind_here()), at most `depth` addresses of it. Returns its leaf as
 * bytes from the first node, with the reason of the end (enum unwind_end) in the upper half.
 */
__noinline __u64 unwind_count(__u64 frame, __u32 depth)
{
	return unwind_walk(frame, 0, 0, 0, depth, NULL);
}

/* The same of a stack that begins with registers: of a kprobe's context, for example. */
__noinline __u64 unwind_count_regs(__u64 ip, __u64 sp, __u64 bp, __u32 depth)
{
	return unwind_walk(sp - 8, ip, bp, 1, depth, NULL);
}

/* Writes the addresses of the stack above a frame, at most `depth`. Returns its leaf, as unwind_count() does. */
__noinline __u64 unwind_frames(__u64 frame, __u32 depth, struct unwind_stack *stack)
{
	return stack ? unwind_walk(frame, 0, 0, 0, depth, stack) : 0;
}

/* The same of a stack that begins with registers. */
__noinline __u64 unwind_frames_regs(__u64 ip, __u64 sp, __u64 bp, __u32 depth,
				    struct unwind_stack *stack)
{
	return stack ? unwind_walk(sp - 8, ip, bp, 1, depth, stack) : 0;
}

/* For programs on the tracepoints module_load and module_free: from now on, rules may be those of other text. */
static __always_inline void unwind_module_changed(void)
{
	struct unwind_state *state = unwind_state();

	if (state)
		__sync_fetch_and_add(&state->changes, 1);
}

/* The frame that a program of type `tp` begins above: that of the kernel's function which called it. */
static __always_inline __u64 unwind_tracepoint(void *ctx)
{
	__u64 context;

	/* The kernel keeps a pointer to registers there, which the verifier shows to nobody. */
	asm volatile("%[context] = %[ctx]\n"
		     "%[context] = -%[context]\n"
		     "%[context] = -%[context]\n"
		     : [context] "=r"(context)
		     : [ctx] "r"(ctx));
	return unwind_load(unwind_load(context) + UNWIND_REGS_SP);
}

#endif
