// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One program of each kind that people attach to functions of processes, as they write them. Compiled by the tests,
 * which have no headers of libbpf: what those would define is defined here.
 */

typedef unsigned int u32;
typedef unsigned long u64;

#define SEC(name)	    __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174;
static u64 (*bpf_get_func_ip)(void *ctx) = (void *)173;
static long (*bpf_loop)(u32 rounds, void *callback, void *ctx, u64 flags) = (void *)181;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u64);
} table SEC(".maps");

const volatile u64 step = 7;
u64 entries = 5;
u64 cookies;

struct pt_regs {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
		flags, sp, ss;
};

static __attribute__((noinline)) u64 mixed(u64 left, u64 right)
{
	return left * 31 + right;
}

SEC("uprobe//proc/self/exe:main")
int on_entry(struct pt_regs *ctx)
{
	u32 key = ctx->di & 3;
	u64 *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		__sync_fetch_and_add(counter, step);
	entries++;
	return mixed(ctx->di, ctx->si);
}

SEC("uretprobe//proc/self/exe:main")
int on_return(struct pt_regs *ctx)
{
	return ctx->ax;
}

SEC("usdt//proc/self/exe:provider:probe")
int on_usdt(struct pt_regs *ctx)
{
	cookies += bpf_get_attach_cookie(ctx);
	return bpf_get_func_ip(ctx);
}

static long add_round(u64 round, u64 *sum)
{
	*sum += round;
	return round == 100;
}

SEC("uprobe")
int on_loop(struct pt_regs *ctx)
{
	u64 sum = 0;

	bpf_loop(50, add_round, &sum, 0);
	return sum;
}

SEC("uprobe")
int on_table(struct pt_regs *ctx)
{
	u32 key = 1;

	return bpf_map_lookup_elem(&table, &key) != 0;
}

char _license[] SEC("license") = "GPL";
