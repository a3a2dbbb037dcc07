// SPDX-License-Identifier: MIT OR Apache-2.0
/* An arena whose pages only the kernel's programs make. */
#include "arena.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE | SEGV_ON_FAULT);
	__uint(max_entries, 1 << 20);
} arena SEC(".maps");

/* Where the page is, where there is none, and what was found there. */
struct {
	__u64 page, none, from_page, from_none, runs;
} seen;

SEC("uprobe")
int use(struct pt_regs *ctx)
{
	volatile __u64 __arena *page = (__u64 __arena *)seen.page;
	volatile __u64 __arena *none = (__u64 __arena *)seen.none;
	/* The kernel wants to know of the arena. */
	void *map = &arena;

	asm volatile("" : : "r"(map));
	seen.from_page += page[3];
	page[3] = seen.runs++;
	seen.from_none += none[3];
	none[3] = seen.runs;
	/* In two pages, of which one is missing. */
	page = (__u64 __arena *)(seen.page + PAGE - 4);
	*page = 7;
	seen.from_none += *page;
	return 0;
}

SEC("syscall")
int make_page(void *ctx)
{
	void __arena *page = bpf_arena_alloc_pages(&arena, NULL, 1, -1, 0);

	seen.page = (__u64)page;
	seen.none = (__u64)page + PAGE;
	return page ? 0 : 1;
}
