/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel's own headers have for arenas. */
#ifndef ARENA_H
#define ARENA_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#ifndef __BPF_FEATURE_ADDR_SPACE_CAST
#error "this clang does not know arenas"
#endif

#define __arena __attribute__((address_space(1)))
#define PAGE	4096

/* Numbers that headers before Linux 6.9 lack. */
enum {
	TYPE_ARENA = 33,
	SEGV_ON_FAULT = 1 << 17
};

void __arena *bpf_arena_alloc_pages(void *map, void __arena *addr, __u32 page_cnt, int node_id,
				    __u64 flags) __ksym __weak;
void bpf_arena_free_pages(void *map, void __arena *ptr, __u32 page_cnt) __ksym __weak;

#define can_loop                                                           \
	({                                                                 \
		__label__ no_more, go_on;                                  \
		bool more = true;                                          \
		asm volatile goto("may_goto %l[no_more]" : : : : no_more); \
		goto go_on;                                                \
no_more:                                                                   \
		more = false;                                              \
go_on:;                                                                    \
		more;                                                      \
	})

#endif
