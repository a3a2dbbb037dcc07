// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tail calls of probes of serve.c's `handle`. What they note does not depend on where they run. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define SLOTS 6

int add(struct pt_regs *ctx);
int forward(struct pt_regs *ctx);
int again(struct pt_regs *ctx);
int late(struct pt_regs *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__array(values, int(void *));
} stages SEC(".maps") = {
	.values = {
		[0] = (void *)&add,
		[1] = (void *)&forward,
		[3] = (void *)&again,
	},
};

/* In one structure, so that their order is known. */
struct {
	__u64 started, fell_through, added, sum, forwarded, nothing_there, rounds, late, returned;
	__u64 cookies;
} all;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} by_length SEC(".maps");

SEC("uprobe")
int add(struct pt_regs *ctx)
{
	__u32 length = PT_REGS_PARM2(ctx) & 63;
	__u64 *count = bpf_map_lookup_elem(&by_length, &length);

	all.added++;
	all.sum += length;
	all.cookies += bpf_get_attach_cookie(ctx);
	if (count)
		*count += 1;
	return 5;
}

/* Slot 2 is empty at first, and slot 99 never was one. */
SEC("uprobe")
int forward(struct pt_regs *ctx)
{
	__u64 keep = PT_REGS_PARM2(ctx);

	all.forwarded++;
	bpf_tail_call(ctx, &stages, 2);
	bpf_tail_call(ctx, &stages, 99);
	all.nothing_there += keep;
	return 6;
}

/* As often as a run may make tail calls. */
SEC("uprobe")
int again(struct pt_regs *ctx)
{
	all.rounds++;
	bpf_tail_call(ctx, &stages, 3);
	return 7;
}

SEC("uprobe")
int late(struct pt_regs *ctx)
{
	all.late++;
	return 8;
}

SEC("uprobe")
int from_main(struct pt_regs *ctx)
{
	__u32 index = all.started++ & 3;

	bpf_tail_call(ctx, &stages, index);
	all.fell_through++;
	return 0;
}

static __noinline int stage(struct pt_regs *ctx, __u64 index)
{
	__u64 kept[4] = { index, index + 1, index + 2, index + 3 };

	bpf_tail_call(ctx, &stages, index);
	all.fell_through += kept[index & 3];
	return index;
}

SEC("uprobe")
int from_function(struct pt_regs *ctx)
{
	__u64 returned = stage(ctx, all.started++ / 8 & 7);

	/* The 33 of a run are those of both. */
	returned = returned * 10 + stage(ctx, 3);
	all.returned = all.returned * 3 + returned;
	return 0;
}

/* Frames that stay below each tail call, of sizes that only the verifier knows. */
static __noinline int fill(char *where, __u64 with)
{
	for (int i = 0; i < 16; i++)
		where[i] = with;
	return with;
}

static __noinline int third(struct pt_regs *ctx)
{
	char buffer[16];

	fill(buffer, 3);
	return stage(ctx, buffer[7]);
}

static __noinline int second(struct pt_regs *ctx)
{
	char buffer[16];

	fill(buffer, 2);
	return third(ctx) + buffer[7];
}

SEC("uprobe")
int too_deep(struct pt_regs *ctx)
{
	char buffer[16];

	fill(buffer, 1);
	return second(ctx) + buffer[7];
}
