/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind_maps: what unwind.bpf.h keeps in maps: the rules that user space writes, the tree of contexts, and what was lost.
 * User space has the same structures by the object's BTF.
 */
#ifndef UNWIND_MAPS_BPF_H
#define UNWIND_MAPS_BPF_H

#include <linux/bpf.h>
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

/* The end of modules and generated code (MODULES_END). What is before a return address of 0 lies behind it. */
#define UNWIND_TEXT_END 0xffffffffff000000ULL

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

#endif
