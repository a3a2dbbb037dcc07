// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_raw_tp: the driver of programs at raw tracepoints, which can change nothing of their context (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

PROGRAM_TARGET(struct bpf_raw_tracepoint_args *ctx)

static __always_inline void see(void *ctx, struct program_state *state)
{
}

static __always_inline void restore(void *ctx)
{
}

PROGRAM_DRIVER("raw_tp", program_raw_tp, struct bpf_raw_tracepoint_args, see, restore)
