// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stack_tracer: takes the kernel's stack at each event, as the tool of study 000 did at ip_rcv(), by the kernel's
 * helper or by unwind.bpf.h, and drops it, reports it, or counts it.
 *
 * In the number: all that such a tool does in the kernel, and up to four additions to counters of this CPU's own in
 * each run, by which a window proves that every event was accounted for. Both walkers write into the same memory: a
 * buffer of the CPU, or a record of the ring buffer, which has the same size for all stacks. Records wake no one.
 * What user space does with them is in its own CPU time.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

#include "unwind.bpf.h"
#include "unwind_modules.bpf.h"
#include "stack_tracer.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_tracer_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_stack);
} dropped SEC(
	".maps"); /* the last stack; the kernel never runs a program inside itself on the same CPU */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} records SEC(".maps"); /* of struct unwind_stack: half a second of 60,000 events a second */

const volatile __u32 walker; /* of enum stack_tracer_walker */
const volatile __u32 delivery; /* of enum stack_tracer_delivery */

/* Where an event's stack begins: at registers, or where `from_regs` is not set, above the frame `sp`. */
struct start {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	_Bool from_regs;
};

/* Takes the stack. Returns whether it was taken down to its end, or as deep as a stack may be. */
static __always_inline _Bool walk(void *ctx, const struct start *start, struct unwind_stack *stack)
{
	__u64 leaf;
	long bytes;

	if (walker == STACK_TRACER_HELPER) {
		bytes = bpf_get_stack(ctx, stack->ip, STACK_TRACER_DEPTH * sizeof(__u64), 0);
		stack->depth = bytes > 0 ? bytes / sizeof(__u64) : 0;
		stack->end = UNWIND_WHOLE;
		return bytes > 0;
	}
	leaf = start->from_regs ? unwind_frames_regs(start->ip, start->sp, start->bp,
						     STACK_TRACER_DEPTH, stack) :
				  unwind_frames(start->sp, STACK_TRACER_DEPTH, stack);
	return leaf >> 32 != UNWIND_LOST && stack->depth > 0;
}

static __always_inline _Bool drop(void *ctx, const struct start *start,
				  struct stack_tracer_counts *count)
{
	__u32 key = 0;
	struct unwind_stack *stack = bpf_map_lookup_elem(&dropped, &key);

	if (!stack || !walk(ctx, start, stack))
		return 0;
	count->frames += stack->depth;
	return 1;
}

static __always_inline _Bool report(void *ctx, const struct start *start,
				    struct stack_tracer_counts *count)
{
	struct unwind_stack *stack = bpf_ringbuf_reserve(&records, sizeof(*stack), 0);

	if (!stack)
		return 0;
	if (!walk(ctx, start, stack)) {
		bpf_ringbuf_discard(stack, BPF_RB_NO_WAKEUP);
		return 0;
	}
	count->frames += stack->depth;
	bpf_ringbuf_submit(stack, BPF_RB_NO_WAKEUP);
	return 1;
}

/* A stack that ends too early is in the tree, but it is lost. */
static __always_inline _Bool count_in_tree(const struct start *start)
{
	__u64 leaf = start->from_regs ? unwind_count_regs(start->ip, start->sp, start->bp,
							  STACK_TRACER_DEPTH) :
					unwind_count(start->sp, STACK_TRACER_DEPTH);

	return leaf >> 32 != UNWIND_LOST && leaf >> 32 != UNWIND_FULL && leaf;
}

static __always_inline int take(void *ctx, const struct start *start)
{
	__u32 key = 0;
	struct stack_tracer_counts *count = bpf_map_lookup_elem(&counts, &key);
	_Bool done;

	if (!count)
		return 0;
	count->events++;
	if (delivery == STACK_TRACER_COUNT)
		done = count_in_tree(start);
	else if (delivery == STACK_TRACER_RING)
		done = report(ctx, start, count);
	else
		done = drop(ctx, start, count);
	if (done)
		count->delivered++;
	else
		count->lost++;
	return 0;
}

SEC("?raw_tp")
int on_raw_tp(void *ctx)
{
	struct start start = { .sp = unwind_here() };

	return take(ctx, &start);
}

SEC("?kprobe")
int on_kprobe(struct pt_regs *ctx)
{
	struct start start = {
		.ip = ctx->rip,
		.sp = ctx->rsp,
		.bp = ctx->rbp,
		.from_regs = 1,
	};

	return take(ctx, &start);
}
