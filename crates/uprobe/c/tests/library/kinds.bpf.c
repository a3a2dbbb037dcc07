// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Every kind of map, lines, cookies and a constant, for use.c and wrong.c. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} thread_array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} thread_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 16 * sizeof(__u64));
} stacks SEC(".maps");

const volatile __u64 step = 1;

struct {
	__u64 steps, sites, stack_id;
} all;

/* Counts in every map, under the cookie. */
SEC("uprobe")
int on_entry(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), one = 1, *count;
	__u32 key = cookie, index = 1;

	__sync_fetch_and_add(&all.steps, step);
	count = bpf_map_lookup_elem(&table, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&table, &key, &one, BPF_ANY);
	count = bpf_map_lookup_elem(&array, &index);
	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&thread_array, &index);
	if (count)
		*count += 1;
	count = bpf_map_lookup_elem(&thread_table, &cookie);
	if (count)
		*count += 1;
	else
		bpf_map_update_elem(&thread_table, &cookie, &one, BPF_ANY);
	return 0;
}

/* Leaves a record of 8 bytes, the result, and a stack. */
SEC("uretprobe")
int BPF_URETPROBE(on_return, __u64 result)
{
	bpf_ringbuf_output(&ring, &result, sizeof(result), 0);
	all.stack_id = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);
	return 0;
}

SEC("usdt")
int BPF_USDT(on_site, __u64 argument)
{
	__u64 cookie = bpf_usdt_cookie(ctx);

	if (cookie == 9)
		__sync_fetch_and_add(&all.sites, argument);
	return 0;
}

SEC("?uprobe")
int on_line(struct pt_regs *ctx)
{
	bpf_printk("called with %lu", PT_REGS_PARM1(ctx));
	return 0;
}
