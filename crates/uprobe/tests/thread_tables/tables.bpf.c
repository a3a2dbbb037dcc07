// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tables that the kernel has per CPU. What they hold in sum does not depend on where the programs run. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct total {
	__u64 runs;
	__u32 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct total);
} by_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} recent SEC(".maps");

/* More than a thread has memory for. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 20000);
	__type(key, __u32);
	__type(value, struct total);
} large SEC(".maps");

/* In one structure, so that their order is known. */
struct {
	__u64 runs, refused, replaced, deleted, entries, walked;
} all;

static long walk(void *map, __u32 *key, struct total *total, void *context)
{
	all.entries++;
	all.walked += *key * total->runs;
	return 0;
}

/* One thread on one CPU: keys come and go, and some find no room. */
SEC("uprobe")
int on_steps(struct pt_regs *ctx)
{
	__u32 length = PT_REGS_PARM2(ctx), key = all.runs++ % 19;
	struct total first = { 1, length };
	struct total *total = bpf_map_lookup_elem(&by_key, &key);

	if (total) {
		total->runs++;
		total->sum += length;
	} else if (bpf_map_update_elem(&by_key, &key, &first, BPF_NOEXIST)) {
		all.refused++;
	}
	if (all.runs % 7 == 0) {
		first.runs = 1000;
		all.replaced += !bpf_map_update_elem(&by_key, &key, &first, BPF_EXIST);
	}
	if (all.runs % 5 == 0) {
		key = all.runs % 23;
		all.deleted += !bpf_map_delete_elem(&by_key, &key);
	}
	if (all.runs % 50 == 0)
		bpf_for_each_map_elem(&by_key, walk, NULL, 0);
	return 0;
}

/* Many threads: each adds to its own values. */
SEC("uprobe")
int on_any(struct pt_regs *ctx)
{
	__u32 key = PT_REGS_PARM1(ctx) & 7;
	__u64 now = PT_REGS_PARM2(ctx), *last;
	struct total none = {};
	struct total *total = bpf_map_lookup_elem(&by_key, &key);

	if (!total) {
		bpf_map_update_elem(&by_key, &key, &none, BPF_NOEXIST);
		total = bpf_map_lookup_elem(&by_key, &key);
	}
	if (total)
		total->runs++;
	else
		__sync_fetch_and_add(&all.refused, 1);
	now += (__u64)bpf_get_prandom_u32() << 32;
	bpf_map_update_elem(&recent, &now, &now, BPF_ANY);
	last = bpf_map_lookup_elem(&recent, &now);
	/* While this thread was interrupted, others may have made all other entries, and this one another's, as in the kernel. */
	if (last && *last != now && bpf_map_lookup_elem(&recent, &now) == last)
		__sync_fetch_and_add(&all.replaced, 1);
	return 0;
}

SEC("uprobe")
int on_large(struct pt_regs *ctx)
{
	__u32 key = 0;

	bpf_map_delete_elem(&large, &key);
	return 0;
}
