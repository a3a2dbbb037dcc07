// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * probe: what is attached to an event, for each kind of program and each body. Study 003 had the
 * bodies `empty` and `map`.
 *
 * In the number: the mechanism that calls the program, the program's own entry and exit, the body,
 * and one addition to `hits`, by which a trial proves that the program ran for every event. That
 * addition is four instructions, in the empty body too: an empty program that can't be seen to
 * run can't be trusted to have run. Not in the number: the event itself, which the same driver
 * makes without a program (the family's baseline).
 *
 * Nothing here is attached by loading: user space picks one program of an attach type, and its
 * expected attach type and target.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h> /* usdt.bpf.h wants it */
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

#include "probe.h"

/* bpf_get_stackid and trace helpers are for programs under the GPL. */
char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_pid SEC(".maps"); /* who was last, on each CPU */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} hits_by_pid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PROBE_RING_BYTES);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1024);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, PROBE_STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

__u64 hits; /* runs of a body; one CPU at a time */
__u64 drops; /* events that the ring buffer had no room for */
__u64 errors; /* what a helper refused */
__u64 other_hits; /* runs for another function than the one asked for (kprobe.multi on all) */
__s64 stack_id; /* of the last stack */
__u64 function; /* address of the function whose hits count (kprobe.multi on all) */

/* Who: the process; where packets are handled there is none, and the CPU stands for it. */
#define PROCESS	  (bpf_get_current_pid_tgid() >> 32)
#define PROCESSOR ((__u64)bpf_get_smp_processor_id())

static __always_inline void count_hit(void)
{
	hits++;
}

static __always_inline void body_map(__u64 pid)
{
	__u32 key = 0;
	__u64 *last = bpf_map_lookup_elem(&last_pid, &key);

	if (last)
		*last = pid;
	else
		errors++;
}

static __always_inline void body_hash(__u64 pid)
{
	__u64 *count = bpf_map_lookup_elem(&hits_by_pid, &pid), one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&hits_by_pid, &pid, &one, BPF_NOEXIST))
		errors++;
}

static __always_inline void body_ringbuf(__u64 pid, __u64 flags)
{
	struct probe_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		drops++;
		return;
	}
	for (int i = 0; i < PROBE_EVENT_WORDS; i++)
		event->word[i] = pid;
	bpf_ringbuf_submit(event, flags);
}

/* Stacks that fall into one bucket take turns there: a tool would lose the second one. */
#define STACK(ctx, whose)                                                                \
	({                                                                               \
		__s64 id = bpf_get_stackid(ctx, &stacks, (whose) | BPF_F_REUSE_STACKID); \
		if (id < 0)                                                              \
			errors++;                                                        \
		stack_id = id;                                                           \
	})

#define KERNEL_STACK 0

/* Programs of one kind: NAME__BODY. `own_event` says whether an event is one that the driver made. */
#define PROBE(section, kind, body_name, ctx_t, own_event, verdict, body) \
	SEC("?" section)                                                 \
	int kind##__##body_name(ctx_t *ctx)                              \
	{                                                                \
		if (!(own_event))                                        \
			return verdict;                                  \
		count_hit();                                             \
		body;                                                    \
		return verdict;                                          \
	}

#define PROBES_WITHOUT_STACK(section, kind, ctx_t, own_event, verdict, pid)   \
	PROBE(section, kind, empty, ctx_t, own_event, verdict, )              \
	PROBE(section, kind, map, ctx_t, own_event, verdict, body_map(pid))   \
	PROBE(section, kind, hash, ctx_t, own_event, verdict, body_hash(pid)) \
	PROBE(section, kind, ringbuf, ctx_t, own_event, verdict,              \
	      body_ringbuf(pid, BPF_RB_NO_WAKEUP))                            \
	PROBE(section, kind, ringbuf_wakeup, ctx_t, own_event, verdict,       \
	      body_ringbuf(pid, BPF_RB_FORCE_WAKEUP))

#define PROBES(section, kind, ctx_t, own_event, verdict)                        \
	PROBES_WITHOUT_STACK(section, kind, ctx_t, own_event, verdict, PROCESS) \
	PROBE(section, kind, stack, ctx_t, own_event, verdict, STACK(ctx, KERNEL_STACK))

/* Events of user space: the kernel came straight from there and has no stack, so theirs is taken. */
#define USER_PROBES(section, kind, ctx_t)                         \
	PROBES_WITHOUT_STACK(section, kind, ctx_t, 1, 0, PROCESS) \
	PROBE(section, kind, stack, ctx_t, 1, 0, STACK(ctx, BPF_F_USER_STACK))

/* kprobe.multi on all functions: the target's hits are counted apart from the others. */
static __always_inline _Bool is_function(struct pt_regs *ctx)
{
	/* The address of the function, or behind its call of the tracer. */
	if (PT_REGS_IP(ctx) - function < 16)
		return 1;
	other_hits++;
	return 0;
}

/* security_bpf(): everyone's bpf(2) passes here; those of the driver have a size of their own. */
static __always_inline _Bool is_driver_call(unsigned long long *ctx)
{
	return ctx[0] == BPF_MAP_DELETE_ELEM && (__u32)ctx[2] == PROBE_CALL_BYTES;
}

PROBES("kprobe", kprobe, struct pt_regs, 1, 0)
PROBES("kprobe", kprobe_all, struct pt_regs, is_function(ctx), 0)
USER_PROBES("uprobe", uprobe, struct pt_regs)
USER_PROBES("usdt", usdt, struct pt_regs)
PROBES("tp", tp, void, 1, 0)
PROBES("raw_tp", raw_tp, void, 1, 0)
PROBES("fentry", tracing, unsigned long long, 1, 0)
PROBES("fentry", security, unsigned long long, is_driver_call(ctx), 0)
PROBES("lsm", lsm, unsigned long long, is_driver_call(ctx), 0)
USER_PROBES("perf_event", perf_event, struct bpf_perf_event_data)
PROBES_WITHOUT_STACK("cgroup_skb/egress", cgroup_skb, struct __sk_buff, 1, 1, PROCESSOR)
PROBES_WITHOUT_STACK("tcx/egress", tcx, struct __sk_buff, 1, -1, PROCESSOR)
PROBES_WITHOUT_STACK("netfilter", netfilter, void, 1, 1, PROCESSOR)
PROBES_WITHOUT_STACK("xdp", xdp, struct xdp_md, 1, XDP_PASS, PROCESSOR)
