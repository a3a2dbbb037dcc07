// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_syscall: the driver of programs of the type `syscall` (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Words of the largest context. */
#define CONTEXT_WORDS 64

/* Those of this one: the verifier takes no access beyond it. */
const volatile __u32 program_context_words;

PROGRAM_TARGET(void *ctx __arg_ctx)

static __always_inline void see(void *ctx, struct program_state *state)
{
}

static __always_inline void restore(void *ctx)
{
	__u64 *words = ctx, *wanted = (__u64 *)program_packet;

#pragma unroll
	for (int i = 0; i < CONTEXT_WORDS; i++)
		if (i < program_context_words)
			words[i] = wanted[i];
}

PROGRAM_DRIVER("syscall", program_syscall, void, see, restore)
