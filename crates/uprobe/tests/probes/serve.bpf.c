// SPDX-License-Identifier: MIT OR Apache-2.0
/* Probes of serve.c's `handle`, as people write them: every kind of map, and what helpers say of a call. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct call {
	__u64 text;
	__u64 length;
};

struct event {
	__u64 thread;
	__u64 function;
	__u64 cookie;
	__u64 result;
	__u64 length;
	char text[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct call);
} open_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} by_length SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} recent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} results SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 16 * sizeof(__u64));
} stacks SEC(".maps");

const volatile __u64 longest = 32;

/* In one structure, so that their order is known. */
struct {
	__u64 entered, refused, busy, unknown, unread;
	__s64 stack_id;
	__u64 stack[4];
	__u64 runs[4], at[4];
} all;

static void count(__u32 index)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &index);

	if (value)
		*value += 1;
}

/* A signal handler of the thread may count between the reading and the writing of the other form. */
static void count_atomically(__u32 index)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &index);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("uprobe")
int BPF_UPROBE(on_entry, __u64 text, __u64 length)
{
	__u64 thread = bpf_get_current_pid_tgid(), one = 1, *known;
	struct call call = { text, length };
	__u32 key = length;
	long error;

	__sync_fetch_and_add(&all.entered, 1);
	count(0);
	error = bpf_map_update_elem(&open_calls, &thread, &call, BPF_ANY);
	if (error)
		__sync_fetch_and_add(error == -16 ? &all.busy : &all.refused, 1);
	known = bpf_map_lookup_elem(&by_length, &key);
	if (known)
		__sync_fetch_and_add(known, 1);
	else if (bpf_map_update_elem(&by_length, &key, &one, BPF_NOEXIST)) {
		known = bpf_map_lookup_elem(&by_length, &key);
		if (known)
			__sync_fetch_and_add(known, 1);
		else
			__sync_fetch_and_add(&all.refused, 1);
	}
	bpf_map_update_elem(&recent, &all.entered, &length, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int BPF_URETPROBE(on_return, __u64 result)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&open_calls, &thread);
	struct event *event;

	count_atomically(1);
	if (!call) {
		__sync_fetch_and_add(&all.unknown, 1);
		return 0;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (event) {
		event->thread = thread;
		event->function = bpf_get_func_ip(ctx);
		event->cookie = bpf_get_attach_cookie(ctx);
		event->result = result;
		event->length = call->length;
		if (bpf_probe_read_user_str(event->text, sizeof(event->text), (void *)call->text) <
		    0)
			__sync_fetch_and_add(&all.unread, 1);
		bpf_ringbuf_submit(event, 0);
	}
	bpf_map_delete_elem(&open_calls, &thread);
	bpf_perf_event_output(ctx, &results, BPF_F_CURRENT_CPU, &result, sizeof(result));
	return 0;
}

SEC("uprobe")
int on_stack(struct pt_regs *ctx)
{
	all.stack_id = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);
	bpf_get_stack(ctx, all.stack, sizeof(all.stack), BPF_F_USER_STACK);
	return 0;
}

/* Counts by the cookie, and keeps where it ran. */
SEC("uprobe")
int on_any(struct pt_regs *ctx)
{
	__u64 index = bpf_get_attach_cookie(ctx) & 3;

	__sync_fetch_and_add(&all.runs[index], 1);
	if (bpf_get_func_ip(ctx) == PT_REGS_IP(ctx))
		all.at[index] = PT_REGS_IP(ctx);
	return 0;
}

/* Reads where nothing is. */
SEC("uprobe")
int on_wild(struct pt_regs *ctx)
{
	__u64 into[2] = { 1, 2 };
	char text[16] = "text";

	if (bpf_probe_read_user(into, sizeof(into), (void *)8) != -14 || into[0] || into[1])
		return 0;
	if (bpf_probe_read_user(into, sizeof(into), (void *)0xffff888000000000) != -14)
		return 0;
	if (bpf_probe_read_user_str(text, sizeof(text), (void *)16) != -14 || text[0])
		return 0;
	__sync_fetch_and_add(&all.entered, 1);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, 8);
} queue SEC(".maps");

SEC("uprobe")
int on_queue(struct pt_regs *ctx)
{
	__u64 one = 1;

	bpf_map_push_elem(&queue, &one, 0);
	return 0;
}
