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

#include "unwind_rules.bpf.h"

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

/* By the number itself: the verifier does not know that a pointer, which the compiler would take, goes with it. */
static __always_inline void unwind_put(struct unwind_stack *stack, __u64 *index, __u64 ip)
{
	asm volatile("" : "+r"(*index));
	stack->ip[*index] = ip;
}

/*
 * The loop, once for kernels that keep frame pointers and once for others. `stack` is where addresses go; where it is NULL,
 * the stack is counted at its leaf. Returns the leaf: bytes from the first node, with the reason of the end in the upper
 * half.
 */
static __always_inline __u64 unwind_walk(_Bool keeps_frames, __u64 slot, __u64 ip, __u64 bp,
					 _Bool from_regs, __u32 depth, struct unwind_stack *stack)
{
	struct unwind_all_nodes *nodes = unwind_tree();
	struct unwind_state *state = unwind_state();
	struct unwind_node *node, *child;
	/* What the loop seldom needs stays in memory: registers are short. */
	struct unwind_at at = { .bp = bp };
	__u64 turn = UNWIND_DEPTH;
	__u32 bytes;

	if (!nodes || !state)
		return 0;
	if (depth > UNWIND_DEPTH)
		depth = UNWIND_DEPTH;
	node = unwind_node(nodes, unwind_root(state, from_regs));
	if (stack) {
		/* 0, but for the verifier any number: of a number that it knew it would follow each turn of the loop. */
		turn = slot;
		asm volatile("%0 -= %1" : "+r"(turn) : "r"(slot));
		turn &= UNWIND_DEPTH - 1;
	} else {
		turn -= depth;
	}
	if (from_regs && depth)
		goto known;
	/* To a constant: Linux before 6.8 does not see the end of a loop otherwise. */
	for (; turn < UNWIND_DEPTH; turn++) {
		if (stack && turn == depth)
			break;
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
		ip = unwind_load(slot);
known:
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
			unwind_put(stack, &turn, ip);
	}
	if (stack && at.end == UNWIND_FULL) {
		/* The frame that has no node is at `at`, with its rule. */
		while (turn < UNWIND_DEPTH && turn != depth) {
			unwind_put(stack, &turn, at.ip);
			turn++;
			at.end = unwind_step(&at);
			if (at.end)
				break;
		}
	}
	if (stack) {
		stack->depth = turn;
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

/*
 * The loop for frame pointers is in functions of its own: within one function, both would be short of registers. Linux
 * before 6.2 follows frame pointers by their rules. Without `ip` the stack begins at a frame.
 */
static __always_inline _Bool unwind_keeps_frames(void)
{
	struct unwind_state *state = unwind_state();

	return unwind_loads_are_checked() && state && state->keeps_frames;
}

__noinline __u64 unwind_count_by_frames(__u64 slot, __u64 ip, __u64 bp, __u32 depth)
{
	if (!unwind_loads_are_checked())
		return 0;
	return unwind_walk(1, slot, ip, bp, ip != 0, depth, NULL);
}

__noinline __u64 unwind_frames_by_frames(__u64 slot, __u64 ip, __u64 bp, __u32 depth,
					 struct unwind_stack *stack)
{
	if (!unwind_loads_are_checked() || !stack)
		return 0;
	return unwind_walk(1, slot, ip, bp, ip != 0, depth, stack);
}

__noinline __u64 unwind_count_by_rules(__u64 frame, __u32 depth)
{
	return unwind_walk(0, frame, 0, 0, 0, depth, NULL);
}

__noinline __u64 unwind_count_regs_by_rules(__u64 ip, __u64 sp, __u64 bp, __u32 depth)
{
	return unwind_walk(0, sp - 8, ip, bp, 1, depth, NULL);
}

__noinline __u64 unwind_frames_by_rules(__u64 frame, __u32 depth, struct unwind_stack *stack)
{
	return stack ? unwind_walk(0, frame, 0, 0, 0, depth, stack) : 0;
}

__noinline __u64 unwind_frames_regs_by_rules(__u64 ip, __u64 sp, __u64 bp, __u32 depth,
					     struct unwind_stack *stack)
{
	return stack ? unwind_walk(0, sp - 8, ip, bp, 1, depth, stack) : 0;
}

/*
 * Counts the stack that begins above a frame (unwind_here()), at most `depth` addresses of it. Returns its leaf as
 * bytes from the first node, with the reason of the end (enum unwind_end) in the upper half.
 */
static __always_inline __u64 unwind_count(__u64 frame, __u32 depth)
{
	return unwind_keeps_frames() ? unwind_count_by_frames(frame, 0, 0, depth) :
				       unwind_count_by_rules(frame, depth);
}

/* The same of a stack that begins with registers: of a kprobe's context, for example. */
static __always_inline __u64 unwind_count_regs(__u64 ip, __u64 sp, __u64 bp, __u32 depth)
{
	return unwind_keeps_frames() ? unwind_count_by_frames(sp - 8, ip, bp, depth) :
				       unwind_count_regs_by_rules(ip, sp, bp, depth);
}

/* Writes the addresses of the stack above a frame, at most `depth`. Returns its leaf, as unwind_count() does. */
static __always_inline __u64 unwind_frames(__u64 frame, __u32 depth, struct unwind_stack *stack)
{
	return unwind_keeps_frames() ? unwind_frames_by_frames(frame, 0, 0, depth, stack) :
				       unwind_frames_by_rules(frame, depth, stack);
}

/* The same of a stack that begins with registers. */
static __always_inline __u64 unwind_frames_regs(__u64 ip, __u64 sp, __u64 bp, __u32 depth,
						struct unwind_stack *stack)
{
	return unwind_keeps_frames() ? unwind_frames_by_frames(sp - 8, ip, bp, depth, stack) :
				       unwind_frames_regs_by_rules(ip, sp, bp, depth, stack);
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
