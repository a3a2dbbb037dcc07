// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * unwind_example: which kernel stacks lead to a system call of a process, as a program of others would count them. Built
 * and run by tests/unwind_example.rs; docs/unwind.md explains it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "unwind.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

__u32 process; /* whose system calls */
__u64 calls;

SEC("raw_tp/sys_enter")
int on_call(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 != process)
		return 0;
	__sync_fetch_and_add(&calls, 1);
	unwind_count(unwind_here(), 32);
	return 0;
}

/* The process asks for itself: namespaces number differently. */
SEC("syscall")
int note_process(void *ctx)
{
	process = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

SEC("raw_tp/module_load")
int on_module_load(void *ctx)
{
	unwind_module_changed();
	return 0;
}

SEC("raw_tp/module_free")
int on_module_free(void *ctx)
{
	unwind_module_changed();
	return 0;
}
