// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* XDP programs as people write them, and some that go wrong in one way each. */
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} packets_by_length SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

static __always_inline __u64 next_run(void)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&runs, &first);

	return count ? ++*count : 0;
}

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp.frags")
int pass_frags(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* 20 bytes in front, filled: after some ten runs a packet has no room for more. */
SEC("xdp")
int push(struct xdp_md *ctx)
{
	void *data;

	if (bpf_xdp_adjust_head(ctx, -20))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if (data + 20 > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memset(data, 0x45, 20);
	return XDP_TX;
}

SEC("xdp")
int pop(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 14) ? XDP_ABORTED : XDP_PASS;
}

SEC("xdp")
int grow(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_tail(ctx, 100) ? XDP_ABORTED : XDP_PASS;
}

SEC("xdp")
int shrink(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_tail(ctx, -10) ? XDP_ABORTED : XDP_PASS;
}

SEC("xdp")
int describe(struct xdp_md *ctx)
{
	__u32 *words;

	if (bpf_xdp_adjust_meta(ctx, -8))
		return XDP_ABORTED;
	words = (void *)(long)ctx->data_meta;
	if ((void *)(words + 2) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	words[0] = 1;
	words[1] = 2;
	return XDP_PASS;
}

static __always_inline int flip(struct xdp_md *ctx, int at)
{
	__u8 *byte = (void *)(long)ctx->data + at;

	if ((void *)(byte + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*byte ^= 1;
	return XDP_PASS;
}

SEC("xdp")
int flip_first(struct xdp_md *ctx)
{
	return flip(ctx, 0);
}

SEC("xdp")
int flip_63(struct xdp_md *ctx)
{
	return flip(ctx, 63);
}

SEC("xdp")
int flip_later(struct xdp_md *ctx)
{
	return flip(ctx, 70);
}

static __noinline __u64 length(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end - (void *)(long)ctx->data;
}

__noinline int is_long(struct xdp_md *ctx)
{
	return length(ctx) > 1000;
}

static long add(__u32 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

/* A map, subprograms of both kinds, and a callback. */
SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u64 one = 1, sum = 0, *packets;
	__u32 key = length(ctx);

	packets = bpf_map_lookup_elem(&packets_by_length, &key);
	if (packets)
		++*packets;
	else
		bpf_map_update_elem(&packets_by_length, &key, &one, BPF_ANY);
	bpf_loop(4, add, &sum, 0);
	return is_long(ctx) || sum != 6 ? XDP_DROP : XDP_PASS;
}

/* What a loader sets and fills. */
const volatile __u16 allowed = 7;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} limits SEC(".maps");

SEC("xdp")
int configured(struct xdp_md *ctx)
{
	__u32 second = 2;
	__u64 *limit = bpf_map_lookup_elem(&limits, &second);

	return allowed == 300 && limit && *limit == 9 ? XDP_TX : XDP_PASS;
}

/* What runs leave in maps. */
#define TABLE(kind, name, entries)            \
	struct {                              \
		__uint(type, kind);           \
		__uint(max_entries, entries); \
		__type(key, __u64);           \
		__type(value, __u64);         \
	} name SEC(".maps")

TABLE(BPF_MAP_TYPE_HASH, seen, 4096);
TABLE(BPF_MAP_TYPE_HASH, few, 2);
TABLE(BPF_MAP_TYPE_LRU_HASH, recent, 1024);
TABLE(BPF_MAP_TYPE_HASH, many, 100000);

struct traffic {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct traffic);
} traffic SEC(".maps");

__u16 last_length;
__u64 last_time;

static __always_inline int remember(void *table)
{
	__u64 key = next_run(), one = 1;

	bpf_map_update_elem(table, &key, &one, BPF_ANY);
	return XDP_PASS;
}

SEC("xdp")
int grows(struct xdp_md *ctx)
{
	return remember(&seen);
}

SEC("xdp")
int grows_large(struct xdp_md *ctx)
{
	return remember(&many);
}

SEC("xdp")
int fills(struct xdp_md *ctx)
{
	return remember(&few);
}

SEC("xdp")
int replaces(struct xdp_md *ctx)
{
	return remember(&recent);
}

SEC("xdp")
int accounts(struct xdp_md *ctx)
{
	__u32 second = 1;
	struct traffic *of_second = bpf_map_lookup_elem(&traffic, &second);

	if (of_second) {
		of_second->packets++;
		of_second->bytes += length(ctx);
	}
	last_length = length(ctx);
	last_time = bpf_ktime_get_ns();
	return XDP_PASS;
}

/* Faults. */
#define FAULTY_RUN 1000

SEC("xdp")
int rarely_drops(struct xdp_md *ctx)
{
	return next_run() % 100000 == 0 ? XDP_DROP : XDP_PASS;
}

/* Only later runs change a byte. */
SEC("xdp")
int later_writes(struct xdp_md *ctx)
{
	__u8 *byte = (void *)(long)ctx->data;

	if ((void *)(byte + 1) <= (void *)(long)ctx->data_end && next_run() == FAULTY_RUN)
		*byte = 0x55;
	return XDP_PASS;
}

SEC("xdp")
int later_pushes(struct xdp_md *ctx)
{
	if (next_run() == FAULTY_RUN)
		bpf_xdp_adjust_head(ctx, -4);
	return XDP_PASS;
}

SEC("xdp")
int later_grows(struct xdp_md *ctx)
{
	if (next_run() == FAULTY_RUN)
		bpf_xdp_adjust_tail(ctx, 4);
	return XDP_PASS;
}

/* What the driver refuses. */
SEC("xdp")
int prints(struct xdp_md *ctx)
{
	bpf_printk("packet");
	return XDP_PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} lengths SEC(".maps");

SEC("xdp")
int reports(struct xdp_md *ctx)
{
	__u64 bytes = length(ctx);

	bpf_ringbuf_output(&lengths, &bytes, sizeof(bytes), 0);
	return XDP_PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1024);
	__type(value, __u64);
} waiting SEC(".maps");

SEC("xdp")
int pushes(struct xdp_md *ctx)
{
	__u64 bytes = length(ctx);

	bpf_map_push_elem(&waiting, &bytes, 0);
	return XDP_PASS;
}

extern void bpf_throw(__u64 cookie) __ksym __weak;

SEC("xdp")
int throws(struct xdp_md *ctx)
{
	if (length(ctx) == 1)
		bpf_throw(0);
	return XDP_PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next_programs SEC(".maps");

SEC("xdp")
int calls_tail(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &next_programs, 0);
	return XDP_PASS;
}

/* It leaves its driver no stack. */
SEC("xdp")
int deep_stack(struct xdp_md *ctx)
{
	volatile char bytes[500];

	bytes[bpf_get_smp_processor_id() & 255] = 1;
	return bytes[bpf_get_smp_processor_id() & 255] == 1 ? XDP_TX : XDP_ABORTED;
}

static __noinline int deep(int at)
{
	volatile char bytes[200];

	bytes[at & 127] = 1;
	return bytes[at & 127];
}

static __noinline int deeper(int at)
{
	volatile char bytes[200];

	bytes[at & 127] = deep(at);
	return bytes[at & 127];
}

/* With all functions that it calls; what is deep in it is not known before the kernel adds them up. */
SEC("xdp")
int deep_calls(struct xdp_md *ctx)
{
	volatile char bytes[64];
	int cpu = bpf_get_smp_processor_id();

	bytes[cpu & 63] = deeper(cpu);
	return bytes[cpu & 63];
}

SEC("xdp")
int is_rejected(struct xdp_md *ctx)
{
	return *(volatile char *)(long)ctx->data;
}

SEC("sockops")
int at_connection(void *ctx)
{
	return 0;
}

SEC("kprobe/tcp_sendmsg")
int at_kprobe(void *ctx)
{
	return 0;
}
