// SPDX-License-Identifier: MIT OR Apache-2.0
/* Reads what reads.c and reads.go point to: all bytes are alike, or none can be read. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define BYTES 16
/* Reaches into three pages. */
#define LONG  9000

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, LONG);
} buffers SEC(".maps");

/* In one structure, so that their order is known. */
struct {
	__u64 read, unread, wrong;
} all;

static void count(const __u64 *first, const __u64 *last, long error, __u64 byte)
{
	__u64 expected = error ? 0 : byte * 0x0101010101010101;

	if ((error && error != -14) || *first != expected || *last != expected)
		__sync_fetch_and_add(&all.wrong, 1);
	else
		__sync_fetch_and_add(error ? &all.unread : &all.read, 1);
}

static void read(const void *text)
{
	__u64 into[BYTES / 8] = { 1, 2 };
	long error = bpf_probe_read_user(into, sizeof(into), text);

	count(&into[0], &into[1], error, 0x5a);
}

SEC("uprobe")
int BPF_UPROBE(on_entry, const void *text)
{
	read(text);
	return 0;
}

SEC("uprobe")
int on_go(struct pt_regs *ctx)
{
	read((void *)ctx->rax);
	return 0;
}

SEC("uprobe")
int BPF_UPROBE(on_long, const void *text)
{
	__u32 key = 0;
	__u64 *into = bpf_map_lookup_elem(&buffers, &key);
	long error;

	if (!into)
		return 0;
	error = bpf_probe_read_user(into, LONG, text);
	count(&into[0], &into[LONG / 8 - 1], error, 0x5a);
	return 0;
}

#define ROOM 128

SEC("uprobe")
int BPF_UPROBE(on_string, const char *text, long expected)
{
	char into[ROOM];
	long result = bpf_probe_read_user_str(into, sizeof(into), text);
	__u64 last = (result - 1) & (ROOM - 1);
	bool is_wrong = result != expected;

	if (result > 0)
		is_wrong |= into[last] != 0;
	if (result > 1)
		is_wrong |= into[0] != 0x5a || into[(last - 1) & (ROOM - 1)] != 0x5a;
	if (is_wrong)
		__sync_fetch_and_add(&all.wrong, 1);
	else
		__sync_fetch_and_add(result < 0 ? &all.unread : &all.read, 1);
	return 0;
}
