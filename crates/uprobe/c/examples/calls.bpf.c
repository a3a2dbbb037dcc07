// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Calls of a function: counted by thread, and a record of each with its first two arguments. For count.c. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual BSD/GPL";

struct call {
	__u64 thread;
	__u64 arguments[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} by_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} calls SEC(".maps");

SEC("uprobe")
int on_call(struct pt_regs *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 one = 1, *count = bpf_map_lookup_elem(&by_thread, &thread);
	struct call *call;

	if (count)
		*count += 1;
	else
		bpf_map_update_elem(&by_thread, &thread, &one, BPF_ANY);
	call = bpf_ringbuf_reserve(&calls, sizeof(*call), 0);
	if (!call)
		return 0;
	call->thread = thread;
	call->arguments[0] = PT_REGS_PARM1(ctx);
	call->arguments[1] = PT_REGS_PARM2(ctx);
	bpf_ringbuf_submit(call, 0);
	return 0;
}
