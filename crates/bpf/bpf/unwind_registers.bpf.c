// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* unwind_registers: walks from registers that a test gives it (tests/unwind_registers.rs). Nothing is timed. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "unwind.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

__u64 ip; /* where the walk begins */
__u64 sp;
__u64 bp;
struct unwind_stack stack; /* what it took */

SEC("syscall")
int walk(void *ctx)
{
	unwind_frames_regs(ip, sp, bp, UNWIND_DEPTH - 1, &stack);
	return 0;
}
