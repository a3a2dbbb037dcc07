// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * driver: makes events inside the kernel, in a timed loop: one call of a function that can be
 * probed, or that has a tracepoint. After the trigger benchmark of the kernel's selftests.
 *
 * In the number: the loop, the call and what it does. No system call but the one that starts the
 * batch. These are the baselines of their families: what a program attached to the event costs is
 * the same batch with it, less the batch without.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "probe.h"
#include "timing.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Linux 6.10 and later: returns its argument, after the tracepoint bpf_trigger_tp. */
extern int bpf_modify_return_test_tp(int nonce) __ksym __weak;

__u64 answers; /* of the last call; so that none is optimised away */

static __always_inline void reset(void *ctx)
{
}

/* bpf_get_numa_node_id(): what kprobes, fprobes and trampolines attach to. */
static __always_inline int call_helper(void *ctx)
{
	answers = bpf_get_numa_node_id();
	return 0;
}

/* bpf_modify_return_test_tp(): a tracepoint in it, and its return value may be modified. */
static __always_inline int call_kfunc(void *ctx)
{
	answers = bpf_modify_return_test_tp(0);
	return 0;
}

/* bpf_trace_printk(): its tracepoint is what kernels before 6.10 have to offer. */
static __always_inline int call_printk(void *ctx)
{
	static const char format[] = ".";

	answers = bpf_trace_printk(format, sizeof(format));
	return 0;
}

/* bpf(2) from inside: security_bpf() with its hooks, then the refusal of a map that is none. */
static __always_inline int call_sys_bpf(void *ctx)
{
	char attributes[PROBE_CALL_BYTES + 4] = {};

	*(__u32 *)attributes = ~0U; /* map_fd */
	answers = bpf_sys_bpf(BPF_MAP_DELETE_ELEM, attributes, PROBE_CALL_BYTES);
	return 0;
}

__u64 peek_address; /* in: of the kernel's code */
__u64 peek_value; /* out: its first 8 bytes; 0 where they can't be read */

/* What stands in the kernel's code: whether a kprobe is a breakpoint or a jump there. Not timed. */
SEC("?syscall")
int peek(void *ctx)
{
	if (bpf_probe_read_kernel(&peek_value, sizeof(peek_value), (void *)peek_address))
		peek_value = 0;
	return 0;
}

TIMED_PROGRAM("syscall", drive_helper, void, call_helper, reset)
TIMED_PROGRAM("syscall", drive_kfunc, void, call_kfunc, reset)
TIMED_PROGRAM("syscall", drive_printk, void, call_printk, reset)
TIMED_PROGRAM("syscall", drive_sys_bpf, void, call_sys_bpf, reset)
