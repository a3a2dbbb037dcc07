// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stack_counter: the kernel stacks of events of a running system, counted in the kernel or reported one by one. The
 * programs of `bpfcost stack`.
 *
 * Every event that passes the filter is accounted for: its stack is counted in the kernel, or reported in the ring
 * buffer, or lost, and events = counted + reported + lost. Where the tree of contexts is full, whole stacks go into the
 * ring buffer instead.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

/* 64 MB, and 8 MB for their hash table. */
#define UNWIND_NODES (1 << 20)
#include "unwind.bpf.h"
#include "unwind_modules.bpf.h"
#include "stack_counter.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define HELPER_STACKS (1 << 16)

struct stack_counter_counts {
	__u64 events; /* that passed the filter */
	__u64 counted; /* in the kernel */
	__u64 reported; /* records in the ring buffer: each event of mode "events", and what the tree had no room for */
	__u64 lost; /* neither */
};

/* A record with addresses. */
struct stack_counter_frames {
	struct stack_counter_event event;
	struct unwind_stack stack;
};

struct stack_id {
	__u64 ip[UNWIND_DEPTH - 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_counter_counts);
} counts SEC(".maps");

/* 8 MB: some 7,700 stacks with their addresses, or 150,000 events without. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} reports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, HELPER_STACKS);
	__type(key, __u32);
	__type(value, struct stack_id);
} stack_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HELPER_STACKS);
	__type(key, __u32);
	__type(value, __u64);
} id_counts SEC(".maps");

struct stack_counter_event head; /* unused here; gives user space the layout of a record's head */
const volatile __u32 mode; /* of enum stack_counter_mode */
const volatile __u32 depth; /* addresses of a stack, at most */
const volatile __u32 process; /* whose events alone; 0: everyone's */
const volatile __u32 own; /* whose events never: the reader's */
/* The process namespace that the two are numbered in; 0: the machine's own. */
const volatile __u64 namespace_device;
const volatile __u64 namespace_inode;
const volatile char comm[STACK_COUNTER_COMM]; /* whose events alone, by command; empty: everyone's */

/* The running process in the reader's numbering; 0 where it has no number there. A function, as it needs a stack. */
__noinline __u32 process_in_namespace(void)
{
	struct bpf_pidns_info in = {};

	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &in, sizeof(in)))
		return 0;
	return in.tgid;
}

/* Whether an event is asked for. */
static __always_inline _Bool passes(void)
{
	__u32 current = namespace_inode ? process_in_namespace() : bpf_get_current_pid_tgid() >> 32;
	char name[STACK_COUNTER_COMM];

	if ((process && current != process) || (own && current == own))
		return 0;
	if (!comm[0])
		return 1;
	if (bpf_get_current_comm(name, sizeof(name)))
		return 0;
	for (int i = 0; i < STACK_COUNTER_COMM; i++) {
		if (name[i] != comm[i])
			return 0;
		if (!name[i])
			break;
	}
	return 1;
}

static __always_inline void describe(struct stack_counter_event *event, __u64 leaf, __u32 addresses)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	event->leaf = leaf;
	event->ns = bpf_ktime_get_ns();
	event->process = pid_tgid >> 32;
	event->thread = pid_tgid;
	event->cpu = bpf_get_smp_processor_id();
	event->depth = addresses;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
}

/* Reports a whole stack. Returns whether there was room. */
static __always_inline _Bool report_frames(__u64 ip, __u64 sp, __u64 bp, _Bool from_regs)
{
	struct stack_counter_frames *frames = bpf_ringbuf_reserve(&reports, sizeof(*frames), 0);
	__u64 leaf;

	if (!frames)
		return 0;
	if (from_regs)
		leaf = unwind_frames_regs(ip, sp, bp, depth, &frames->stack);
	else
		leaf = unwind_frames(sp, depth, &frames->stack);
	describe(&frames->event, leaf, frames->stack.depth);
	/* The reader looks regularly: a wake-up would cost more than the record. */
	bpf_ringbuf_submit(frames, BPF_RB_NO_WAKEUP);
	return 1;
}

static __always_inline _Bool report_leaf(__u64 leaf)
{
	struct stack_counter_event *event = bpf_ringbuf_reserve(&reports, sizeof(*event), 0);

	if (!event)
		return 0;
	describe(event, leaf, 0);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 1;
}

/* Counts a stack by the helper. Returns whether it could. */
static __always_inline _Bool count_by_helper(void *ctx)
{
	long id = bpf_get_stackid(ctx, &stack_ids, 0);
	__u32 key = id;
	__u64 zero = 0, *so_far;

	if (id < 0)
		return 0;
	so_far = bpf_map_lookup_elem(&id_counts, &key);
	if (!so_far) {
		/* Another CPU may do the same just now. */
		bpf_map_update_elem(&id_counts, &key, &zero, BPF_NOEXIST);
		so_far = bpf_map_lookup_elem(&id_counts, &key);
	}
	if (!so_far)
		return 0;
	__sync_fetch_and_add(so_far, 1);
	return 1;
}

/* `sp` is the frame where `from_regs` is not set. */
static __always_inline int take(void *ctx, __u64 ip, __u64 sp, __u64 bp, _Bool from_regs)
{
	__u32 key = 0;
	struct stack_counter_counts *count = bpf_map_lookup_elem(&counts, &key);
	__u64 leaf;

	if (!count || !passes())
		return 0;
	/* Programs may be nested on a CPU: an addition to its own cache line that none of them loses. */
	__sync_fetch_and_add(&count->events, 1);
	if (mode == STACK_COUNTER_HELPER) {
		if (count_by_helper(ctx))
			__sync_fetch_and_add(&count->counted, 1);
		else
			__sync_fetch_and_add(&count->lost, 1);
		return 0;
	}
	leaf = from_regs ? unwind_count_regs(ip, sp, bp, depth) : unwind_count(sp, depth);
	if (leaf >> 32 != UNWIND_FULL && mode == STACK_COUNTER_COUNT)
		__sync_fetch_and_add(&count->counted, 1);
	else if (leaf >> 32 == UNWIND_FULL ? report_frames(ip, sp, bp, from_regs) :
					     report_leaf(leaf))
		__sync_fetch_and_add(&count->reported, 1);
	else
		__sync_fetch_and_add(&count->lost, 1);
	return 0;
}

SEC("?raw_tp")
int on_raw_tp(void *ctx)
{
	return take(ctx, 0, unwind_here(), 0, 0);
}

SEC("?tp")
int on_tracepoint(void *ctx)
{
	return take(ctx, 0, unwind_tracepoint(ctx), 0, 0);
}

SEC("?fentry")
int on_fentry(void *ctx)
{
	return take(ctx, 0, unwind_here(), 0, 0);
}

SEC("?kprobe")
int on_kprobe(struct pt_regs *ctx)
{
	return take(ctx, ctx->rip, ctx->rsp, ctx->rbp, 1);
}
