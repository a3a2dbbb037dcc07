// SPDX-License-Identifier: MIT OR Apache-2.0
/* The programs of counting.c, with each kind of map that tools have. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define MAP(name, kind, entries, value_type)       \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, __u32);                \
		__type(value, value_type);         \
	} name SEC(".maps")

/* By the remainder of the argument. */
MAP(by_rest, HASH, 64, __u64);
/* With more room than the kernel keeps apart for each CPU: it would drop entries. */
MAP(recent, LRU_HASH, 10000, __u64);
MAP(by_rest_and_cpu, PERCPU_HASH, 64, __u64);
MAP(by_cpu, PERCPU_ARRAY, 4, __u64);
MAP(sums, ARRAY, 4, __u64);
MAP(weights, HASH, 64, __u64);

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	/* More would be of several callers, which might have one place. */
	__uint(value_size, 2 * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} perf SEC(".maps");

/* In one structure, so that their order is known. */
const volatile struct {
	__u64 divisor, each_record;
} options = { 1, 1 };

struct record {
	__u64 argument;
	__u64 result;
	__u64 process;
	char command[16];
};

static void add(void *map, __u32 key, __u64 more)
{
	__u64 *value = bpf_map_lookup_elem(map, &key), nothing = 0;

	if (!value) {
		bpf_map_update_elem(map, &key, &nothing, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, more);
}

/* As programs add to the values of a CPU, which no other run has. */
static void add_for_cpu(void *map, __u32 key, __u64 more)
{
	__u64 *value = bpf_map_lookup_elem(map, &key), nothing = 0;

	if (!value) {
		bpf_map_update_elem(map, &key, &nothing, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		*value += more;
}

SEC("uprobe")
int BPF_UPROBE(on_entry, __u64 argument)
{
	__u32 rest = argument % options.divisor;
	__u64 *weight = bpf_map_lookup_elem(&weights, &rest);

	add(&by_rest, rest, 1);
	add(&recent, rest, argument);
	add_for_cpu(&by_rest_and_cpu, rest, weight ? *weight : 0);
	add_for_cpu(&by_cpu, rest & 3, 1);
	add(&sums, rest & 3, argument);
	add(&by_rest, 101, bpf_get_attach_cookie(ctx));
	return 0;
}

SEC("uretprobe")
int BPF_URETPROBE(on_return, __u64 result)
{
	struct record record = { result - 1, result, bpf_get_current_pid_tgid() >> 32 };

	/* Here, as the kernel's stacks at entries lack the caller, but for some. */
	bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (result % options.each_record)
		return 0;
	bpf_get_current_comm(record.command, sizeof(record.command));
	bpf_ringbuf_output(&ring, &record, sizeof(record), 0);
	bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &record, sizeof(record));
	return 0;
}

/* At several places by one link. */
SEC("?uprobe.multi")
int on_several(void *ctx)
{
	add(&by_rest, 100, bpf_get_attach_cookie(ctx));
	return 0;
}

/* What has no form in user space. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16);
	__uint(value_size, sizeof(__u64));
} queue SEC(".maps");

SEC("?uprobe")
int on_queue(void *ctx)
{
	__u64 one = 1;

	bpf_map_push_elem(&queue, &one, 0);
	return 0;
}

/* Of the kernel, with a hash table of those above. */
SEC("?raw_tp/sys_enter")
int in_kernel(void *ctx)
{
	add(&by_rest, 1, 1);
	return 0;
}
