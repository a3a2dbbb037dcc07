// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stack: what it costs to take the kernel stack, by the kernel's helpers and by unwind.bpf.h, and to deliver it.
 *
 * One thread writes a byte to a TCP connection with itself. The kernel delivers it within that system call, in a soft
 * interrupt, so the event is some 30 frames deep, on two stacks. There a program takes the same stack again and
 * again, in the timed loop of timing.bpf.h.
 *
 * In the number: taking a stack, and counting it, or putting it into the ring buffer. Not in it: the event, the
 * program's start, user space. The loop is (the floor `none` has it alone). Caches and predictions are warm.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

#include "timing.bpf.h"
#include "unwind.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Stacks that bpf_get_stackid() can keep. */
#define STACK_IDS 1024

struct stack_id {
	__u64 ip[UNWIND_DEPTH - 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, STACK_IDS);
	__type(key, __u32);
	__type(value, struct stack_id);
} stack_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STACK_IDS);
	__type(key, __u32);
	__type(value, __u64);
} id_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} records SEC(".maps");

__u64 thread; /* that the events are of, in the kernel's numbering */
__u64 armed; /* whether the next event of it is the one */
__u64 fired; /* events that ran a batch */
__u64 start_frame; /* where the stack begins */
__u64 depth; /* addresses to take, at most UNWIND_DEPTH - 1 */
__u64 failures; /* of helpers, or records without room */
__u64 last; /* what the last body returned: the leaf, the id, the bytes */
struct unwind_stack taken; /* what the last body wrote */

/* Run by the thread whose events are asked for. */
SEC("?syscall")
int note_thread(void *ctx)
{
	thread = bpf_get_current_pid_tgid();
	return 0;
}

/* Whether this event is the one that user space has armed. */
static __always_inline _Bool chosen(void)
{
	if (!armed || bpf_get_current_pid_tgid() != thread)
		return 0;
	armed = 0;
	fired++;
	return 1;
}

static __always_inline void note(long result)
{
	last = result;
	if (result < 0)
		failures++;
}

static __always_inline int take_none(void *ctx)
{
	return 0;
}

static __always_inline __u32 helper_bytes(void)
{
	__u64 bytes = depth * 8;

	return bytes > sizeof(taken.ip) ? sizeof(taken.ip) : bytes;
}

static __always_inline int take_get_stack(void *ctx)
{
	note(bpf_get_stack(ctx, taken.ip, helper_bytes(), 0));
	return 0;
}

static __always_inline int take_get_stack_ring(void *ctx)
{
	struct unwind_stack *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	__u32 bytes = helper_bytes();
	long taken_bytes;

	if (!record) {
		failures++;
		return 0;
	}
	taken_bytes = bpf_get_stack(ctx, record->ip, bytes, 0);
	note(taken_bytes);
	record->end = 0;
	record->depth = (__u32)taken_bytes / 8;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int take_get_task_stack(void *ctx)
{
	note(bpf_get_task_stack(bpf_get_current_task_btf(), taken.ip, helper_bytes(), 0));
	return 0;
}

/* The helper always walks the whole stack; what it skips is at the other end. */
static __always_inline int take_get_stackid(void *ctx)
{
	note(bpf_get_stackid(ctx, &stack_ids, 0));
	return 0;
}

static __always_inline int take_get_stackid_count(void *ctx)
{
	__u32 id = bpf_get_stackid(ctx, &stack_ids, 0);
	__u64 *count = bpf_map_lookup_elem(&id_counts, &id), one = 1;

	note((__s32)id);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&id_counts, &id, &one, BPF_NOEXIST))
		failures++;
	return 0;
}

static __always_inline int take_count(void *ctx)
{
	last = unwind_count(start_frame, depth);
	return 0;
}

static __always_inline int take_count_ring(void *ctx)
{
	__u64 leaf = unwind_count(start_frame, depth);

	last = leaf;
	if (bpf_ringbuf_output(&records, &leaf, sizeof(leaf), BPF_RB_NO_WAKEUP))
		failures++;
	return 0;
}

static __always_inline int take_frames(void *ctx)
{
	last = unwind_frames(start_frame, depth, &taken);
	return 0;
}

static __always_inline int take_frames_ring(void *ctx)
{
	struct unwind_stack *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record) {
		failures++;
		return 0;
	}
	last = unwind_frames(start_frame, depth, record);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Of a kprobe, whose context is registers. */
static __always_inline int take_count_regs(void *ctx)
{
	struct pt_regs *regs = ctx;

	last = unwind_count_regs(regs->rip, regs->rsp, regs->rbp, depth);
	return 0;
}

static __always_inline int take_frames_regs(void *ctx)
{
	struct pt_regs *regs = ctx;

	last = unwind_frames_regs(regs->rip, regs->rsp, regs->rbp, depth, &taken);
	return 0;
}

static __always_inline void no_reset(void *ctx)
{
}

#define STACK_PROGRAM(section, name, take)                              \
	static __always_inline int name##__body(void *ctx)              \
	{                                                               \
		return take(ctx);                                       \
	}                                                               \
                                                                        \
	static long name##__step(__u32 index, void *turn)               \
	{                                                               \
		return timing_step(turn, name##__body, no_reset);       \
	}                                                               \
                                                                        \
	SEC("?" section)                                                \
	int name(void *ctx)                                             \
	{                                                               \
		if (!chosen())                                          \
			return 0;                                       \
		start_frame = unwind_here();                            \
		timing_can_loop_batch(ctx, name##__body, no_reset);     \
		return 0;                                               \
	}                                                               \
                                                                        \
	SEC("?" section)                                                \
	int name##__bpf_loop(void *ctx)                                 \
	{                                                               \
		if (!chosen())                                          \
			return 0;                                       \
		start_frame = unwind_here();                            \
		timing_bpf_loop_batch(ctx, name##__body, name##__step); \
		return 0;                                               \
	}

STACK_PROGRAM("raw_tp/tcp_probe", none_raw_tp, take_none)
STACK_PROGRAM("raw_tp/tcp_probe", get_stack_raw_tp, take_get_stack)
STACK_PROGRAM("raw_tp/tcp_probe", get_stack_ring_raw_tp, take_get_stack_ring)
STACK_PROGRAM("raw_tp/tcp_probe", get_task_stack_raw_tp, take_get_task_stack)
STACK_PROGRAM("raw_tp/tcp_probe", get_stackid_raw_tp, take_get_stackid)
STACK_PROGRAM("raw_tp/tcp_probe", get_stackid_count_raw_tp, take_get_stackid_count)
STACK_PROGRAM("raw_tp/tcp_probe", count_raw_tp, take_count)
STACK_PROGRAM("raw_tp/tcp_probe", count_ring_raw_tp, take_count_ring)
STACK_PROGRAM("raw_tp/tcp_probe", frames_raw_tp, take_frames)
STACK_PROGRAM("raw_tp/tcp_probe", frames_ring_raw_tp, take_frames_ring)

/* Other ways to attach: how a stack is delivered makes no difference to them. */
#define STACK_PROGRAMS(section, attach, count, frames)                 \
	STACK_PROGRAM(section, none_##attach, take_none)               \
	STACK_PROGRAM(section, get_stack_##attach, take_get_stack)     \
	STACK_PROGRAM(section, get_stackid_##attach, take_get_stackid) \
	STACK_PROGRAM(section, count_##attach, count)                  \
	STACK_PROGRAM(section, frames_##attach, frames)

STACK_PROGRAMS("tp_btf/tcp_probe", tp_btf, take_count, take_frames)
STACK_PROGRAMS("kprobe/tcp_rcv_established", kprobe, take_count_regs, take_frames_regs)
STACK_PROGRAMS("fentry/tcp_rcv_established", fentry, take_count, take_frames)
