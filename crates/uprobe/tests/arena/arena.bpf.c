// SPDX-License-Identifier: MIT OR Apache-2.0
/* An arena that probes of serve.c's `handle` and forked.c's `work` write, and programs of the kernel too. */
#include "arena.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define CHAINS 16
#define NODES  400

struct {
	__uint(type, TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
} arena SEC(".maps");

struct node {
	struct node __arena *next;
	__u64 key, count, sum;
};

struct all {
	struct node __arena *first[CHAINS];
	__u64 used, refused, calls;
	__u32 lock, busy;
	/* A page that a program of the kernel made. */
	__u64 __arena *page;
	__u64 factor;
	__u64 locked;
};

struct all __arena all;
struct node __arena nodes[NODES];

/* What loads gave, and where the arena's variables are. */
struct {
	__u64 loads, sum, chained, from_page, all_at, nodes_at;
} seen;

static __noinline struct node __arena *find(struct node __arena *node, __u64 key)
{
	while (node && node->key != key && can_loop)
		node = node->next;
	return node;
}

static struct node __arena *make(__u64 key)
{
	__u64 number = __sync_fetch_and_add(&all.used, 1);
	struct node __arena *node;

	if (number >= NODES) {
		all.refused++;
		return NULL;
	}
	node = &nodes[number];
	node->key = key;
	node->next = all.first[key % CHAINS];
	all.first[key % CHAINS] = node;
	return node;
}

static void add(__u64 key, __u64 number)
{
	struct node __arena *node = find(all.first[key % CHAINS], key);

	if (!node)
		node = make(key);
	if (node) {
		node->count++;
		node->sum += number;
	}
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} by_length SEC(".maps");

/* Of one thread: chains of nodes, by a number that the text ends with. */
SEC("uprobe")
int chain(struct pt_regs *ctx)
{
	__u64 length = PT_REGS_PARM2(ctx), call = all.calls++;

	seen.all_at = (__u64)&all;
	seen.nodes_at = (__u64)&nodes;
	add(call * 7 % 450, length + all.factor);
	if (all.page) {
		seen.from_page += all.page[call % 512];
		all.page[call % 512] += length;
	}
	return 0;
}

/* Of many threads: a lock, an atomic addition, and an addition that only the lock protects. */
SEC("uprobe")
int locked(struct pt_regs *ctx)
{
	seen.all_at = (__u64)&all;
	__sync_fetch_and_add(&all.calls, 1);
	while (can_loop) {
		if (__sync_val_compare_and_swap(&all.lock, 0, 1) == 0) {
			all.locked += 1;
			__sync_lock_test_and_set(&all.lock, 0);
			return 0;
		}
	}
	__sync_fetch_and_add(&all.busy, 1);
	return 0;
}

/* Pointers to nothing, to what is beyond the arena, and to anything. */
SEC("uprobe")
int wild(struct pt_regs *ctx)
{
	__u64 call = all.calls++, start = (__u64)&nodes;

	seen.all_at = (__u64)&all;
	seen.nodes_at = (__u64)&nodes;

	__u64 addresses[] = {
		0,
		call,
		start + (1ul << 20),
		start - (1ul << 20),
		call << 40,
		-call - 1,
		call * 0x9e3779b97f4a7c15 | 0x80000000,
	};

	for (int i = 0; i < sizeof(addresses) / sizeof(*addresses) && can_loop; i++) {
		volatile __u64 __arena *bad = (volatile __u64 __arena *)addresses[i];

		*bad = call | 1;
		seen.sum += *bad;
		__sync_fetch_and_add(bad, 5);
		seen.sum += *bad;
		seen.loads += 2;
	}
	return 0;
}

/* A function that the verifier looks at by itself. */
__noinline __u64 weight(struct node __arena *node __arg_arena, __u64 by)
{
	return node ? node->count * by + node->key : 1;
}

struct walk {
	struct node __arena *node;
	__u64 sum;
	__u32 step;
};

static int walk_on(__u64 round, struct walk *walk)
{
	struct node __arena *node = walk->node;

	if (!node)
		return 1;
	walk->sum += node->sum * round + node[walk->step].count;
	walk->node = node->next;
	return 0;
}

/* Pointers of several kinds at the same time, more than there are registers, and all kinds of calls. */
SEC("uprobe")
int mixed(struct pt_regs *ctx)
{
	__u64 call = all.calls++, length = PT_REGS_PARM2(ctx), *counted, first = 1;
	struct node __arena *some = &nodes[call % 200], *other = &nodes[(call * 7 + 3) % 200];
	struct walk walk = { all.first[call % CHAINS], 0, call & 3 };
	char text[24];

	seen.all_at = (__u64)&all;
	seen.nodes_at = (__u64)&nodes;
	add(call % 150, length);
	some->sum += length;
	if (bpf_probe_read_user(text, sizeof(text), (void *)PT_REGS_PARM1(ctx)))
		return 0;
	for (int i = 8; i < 16 && can_loop; i++) {
		some[i & 3].key += text[i];
		other[text[i] & 7].sum ^= text[i] + some->key;
		some = i & 1 ? some + 1 : other;
	}
	counted = bpf_map_lookup_elem(&by_length, &length);
	if (counted) {
		*counted += weight(some, length);
		other->sum += *counted;
	} else {
		bpf_map_update_elem(&by_length, &length, &first, 0);
		other->key ^= some->sum;
	}
	bpf_loop(5, walk_on, &walk, 0);
	some->sum += walk.sum;
	other[walk.step].sum += bpf_get_current_pid_tgid() ? weight(other, walk.sum) : 0;
	seen.loads += some->sum + other->sum + text[9];
	return 0;
}

/* Programs of the kernel. */
SEC("syscall")
int sum(void *ctx)
{
	seen.chained = 0;
	for (int i = 0; i < CHAINS && can_loop; i++) {
		struct node __arena *node = all.first[i];

		while (node && can_loop) {
			seen.chained += node->count * node->key + node->sum;
			node = node->next;
		}
	}
	return 0;
}

SEC("syscall")
int make_page(void *ctx)
{
	__u64 __arena *page = bpf_arena_alloc_pages(&arena, NULL, 1, -1, 0);

	if (!page)
		return 1;
	for (int i = 0; i < 512 && can_loop; i++)
		page[i] = i * 3;
	all.page = page;
	return 0;
}
