// SPDX-License-Identifier: MIT OR Apache-2.0
/* An arena whose pages may go away. */
#include "arena.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4);
} arena SEC(".maps");

SEC("syscall")
int free_page(void *ctx)
{
	void __arena *page = bpf_arena_alloc_pages(&arena, NULL, 1, -1, 0);

	bpf_arena_free_pages(&arena, page, 1);
	return 0;
}
