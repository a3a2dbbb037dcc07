// SPDX-License-Identifier: MIT OR Apache-2.0
/* Counts calls of `work` in maps of several kinds, and sends a record of each. The target calls it with a small number. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct call {
	__u32 process;
	int negative;
	/* Text that would drive a terminal. */
	char text[8];
};

struct place {
	__u32 number;
	__u16 half;
	__u16 zero;
};

/* Has the compiler keep the type of records. */
struct call example;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct place);
	__type(value, __u64);
} by_number SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} by_thread SEC(".maps");

__u64 calls;

SEC("uprobe/" TARGET ":work")
int on_work(struct pt_regs *ctx)
{
	__u32 number = PT_REGS_PARM1(ctx), second = 1;
	struct place place = { number, 7, 0 };
	struct call call = { bpf_get_current_pid_tgid() >> 32, -(int)number, "\033[31m" };
	__u64 first = 1, *count;

	__sync_fetch_and_add(&calls, 1);
	if (bpf_map_update_elem(&by_number, &place, &first, BPF_NOEXIST)) {
		count = bpf_map_lookup_elem(&by_number, &place);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	count = bpf_map_lookup_elem(&by_thread, &second);
	if (count)
		(*count)++;
	bpf_ringbuf_output(&records, &call, sizeof(call), 0);
	return 0;
}

SEC("uretprobe/" TARGET ":work")
int on_return(struct pt_regs *ctx)
{
	bpf_printk("%c[31m returned", 27);
	return 0;
}
