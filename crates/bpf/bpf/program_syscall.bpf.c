// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* program_syscall: the driver of programs of the type `syscall` (program.bpf.h). */
#include "program.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Words of the largest context. */
#define CONTEXT_WORDS 64

/* Those of this one: the verifier takes no access beyond it. */
const volatile __u32 program_context_words;
/* Bytes behind them, less than a word. */
const volatile __u32 program_context_rest;

PROGRAM_TARGET(void *ctx __arg_ctx)

static __always_inline void see(void *ctx, struct program_state *state)
{
}

static __always_inline void restore(void *ctx)
{
	__u64 *words = ctx, *wanted = (__u64 *)program_packet;
	__u8 *bytes = ctx;

#pragma unroll
	for (int i = 0; i < CONTEXT_WORDS; i++) {
		if (i < program_context_words)
			words[i] = wanted[i];
		if (i != program_context_words)
			continue;
#pragma unroll
		for (int j = 0; j < 7; j++)
			if (j < program_context_rest)
				bytes[8 * i + j] = program_packet[8 * i + j];
	}
}

/* Sleepable programs make no tail calls. */
PROGRAM_LOOPS("syscall", program_syscall, void, see, restore)
