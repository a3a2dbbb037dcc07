// SPDX-License-Identifier: MIT OR Apache-2.0
/* Compares what the helper says of the thread with what the thread says of itself. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

/* Calls, and calls with another thread's number. */
__u64 calls, others;

SEC("uprobe")
int on_handle(struct pt_regs *context)
{
	__sync_fetch_and_add(&calls, 1);
	if (bpf_get_current_pid_tgid() != PT_REGS_PARM1(context))
		__sync_fetch_and_add(&others, 1);
	return 0;
}
