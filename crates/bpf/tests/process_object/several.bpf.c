// SPDX-License-Identifier: MIT OR Apache-2.0
/* Two programs at each place of arguments.c's `described`. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} records SEC(".maps");

static int note(__u64 program)
{
	bpf_ringbuf_output(&records, &program, sizeof(program), 0);
	return 0;
}

SEC("uprobe/target:described")
int entry_1(struct pt_regs *ctx)
{
	return note(1);
}

SEC("uretprobe/target:described")
int return_1(struct pt_regs *ctx)
{
	return note(2);
}

SEC("usdt/target:test:none")
int site_1(struct pt_regs *ctx)
{
	return note(3);
}

SEC("uprobe/target:described")
int entry_2(struct pt_regs *ctx)
{
	return note(4);
}

SEC("uretprobe/target:described")
int return_2(struct pt_regs *ctx)
{
	return note(5);
}

SEC("usdt/target:test:none")
int site_2(struct pt_regs *ctx)
{
	return note(6);
}
