// SPDX-License-Identifier: MIT OR Apache-2.0
/* Several programs at each place of steps.c's `step`. What they note does not depend on where they run, but for times and
 * threads.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

#define PROGRAMS 16

char _license[] SEC("license") = "Dual MIT/GPL";

/* What one run found. */
struct event {
	__u64 time;
	__u64 thread;
	__u64 program;
	__u64 cookie;
	__u64 function;
	__u64 address;
	__u64 first;
	__s64 second;
};

struct total {
	__u64 runs;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, struct event);
} last_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, struct total);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct total);
} by_value SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
	__u64 runs[PROGRAMS];
	/* Depends on the order in which the programs run. */
	__u64 order;
} all;

static void note(struct pt_regs *ctx, __u32 program, __u64 first, __s64 second)
{
	struct total *total, new = { 0, 0 };
	struct event event = {
		.time = bpf_ktime_get_ns(),
		.thread = bpf_get_current_pid_tgid(),
		.program = program,
		.cookie = bpf_get_attach_cookie(ctx),
		.function = bpf_get_func_ip(ctx),
		.address = PT_REGS_IP(ctx),
		.first = first,
		.second = second,
	};
	/* By the call, and by the program. */
	__u64 key = first % 251 << 8 | program;

	__sync_fetch_and_add(&all.runs[program % PROGRAMS], 1);
	all.order = all.order * 31 + program;
	bpf_map_update_elem(&last_events, &program, &event, BPF_ANY);
	total = bpf_map_lookup_elem(&totals, &program);
	if (total) {
		total->runs += 1;
		total->sum += first * 3 + second;
	}
	bpf_map_update_elem(&by_value, &key, &new, BPF_NOEXIST);
	total = bpf_map_lookup_elem(&by_value, &key);
	if (total) {
		__sync_fetch_and_add(&total->runs, 1);
		__sync_fetch_and_add(&total->sum, second);
	}
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
}

static void note_entry(struct pt_regs *ctx, __u32 program)
{
	note(ctx, program, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
}

static void note_arguments(struct pt_regs *ctx, __u32 program)
{
	long first = 0, second = 0, third = 0, fourth = 0;

	bpf_usdt_arg(ctx, 0, &first);
	bpf_usdt_arg(ctx, 1, &second);
	bpf_usdt_arg(ctx, 2, &third);
	bpf_usdt_arg(ctx, 3, &fourth);
	note(ctx, program, first, second + third * 1000 + fourth);
}

SEC("uprobe")
int entry_1(struct pt_regs *ctx)
{
	note_entry(ctx, 1);
	return 0;
}

SEC("uprobe")
int entry_2(struct pt_regs *ctx)
{
	note_entry(ctx, 2);
	return 0;
}

SEC("uprobe")
int entry_3(struct pt_regs *ctx)
{
	note_entry(ctx, 3);
	return 0;
}

SEC("uretprobe")
int return_1(struct pt_regs *ctx)
{
	note(ctx, 4, PT_REGS_RC(ctx), 0);
	return 0;
}

SEC("uretprobe")
int return_2(struct pt_regs *ctx)
{
	note(ctx, 5, PT_REGS_RC(ctx), 1);
	return 0;
}

SEC("usdt")
int begun(struct pt_regs *ctx)
{
	note_arguments(ctx, 6);
	return 0;
}

SEC("usdt")
int inner_1(struct pt_regs *ctx)
{
	note_arguments(ctx, 7);
	return 0;
}

SEC("usdt")
int inner_2(struct pt_regs *ctx)
{
	note_arguments(ctx, 8);
	return 0;
}
