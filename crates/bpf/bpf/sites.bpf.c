// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sites: programs that are attached at many sites at once, for the cost of attaching and detaching
 * them. Their runs are not timed. They are short because they run at thousands of functions: a run
 * for another thread than the caller's ends after one comparison, and writes nothing.
 *
 * A trial makes events at sites and compares the runs, so it knows that these sites were attached.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual BSD/GPL";

__u64 caller; /* the thread whose runs count, in the kernel's numbering: namespaces number differently */
__u64 witness; /* address of the function whose runs count; 0 for every one */
__u64 last; /* address of the function of the last run that counted */
__u64 hits; /* runs that count */

/* The cookie of the tracepoint whose runs count. */
#define WITNESS 1

static __always_inline _Bool is_caller(void)
{
	return bpf_get_current_pid_tgid() == caller;
}

static __always_inline int run_at(__u64 function)
{
	if (witness && function != witness)
		return 0;
	last = function;
	hits++;
	return 0;
}

/* Run by the thread that will make events. */
SEC("?syscall")
int note_caller(void *ctx)
{
	caller = bpf_get_current_pid_tgid();
	return 0;
}

SEC("?kprobe")
int on_kprobe(struct pt_regs *ctx)
{
	if (!is_caller())
		return 0;
	return run_at(PT_REGS_IP(ctx));
}

SEC("?fentry")
int on_fentry(unsigned long long *ctx)
{
	if (!is_caller())
		return 0;
	return run_at(bpf_get_func_ip(ctx));
}

SEC("?uprobe")
int on_uprobe(struct pt_regs *ctx)
{
	if (is_caller())
		hits++;
	return 0;
}

SEC("?tp")
int on_tracepoint(void *ctx)
{
	if (is_caller() && bpf_get_attach_cookie(ctx) == WITNESS)
		hits++;
	return 0;
}

/* Packets may be handled on any CPU, and by any thread; those interfaces carry no others. */
SEC("?tcx/egress")
int on_tcx(struct __sk_buff *packet)
{
	__sync_fetch_and_add(&hits, 1);
	return -1; /* TCX_NEXT */
}

SEC("?xdp")
int on_xdp(struct xdp_md *frame)
{
	__sync_fetch_and_add(&hits, 1);
	return XDP_DROP;
}
