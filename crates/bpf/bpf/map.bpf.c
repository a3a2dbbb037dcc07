// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * map: what does one operation on a map cost? Each kind of map, looked up, missed, written
 * in place, and with a key inserted and deleted again.
 *
 * In the number: the helper and all that it does, and a load of the value's first word
 * after a hit. The verifier replaces some helpers, and that is how programs run too:
 *
 *	array lookup		a few instructions in place of the call
 *	hash, LRU lookup	a direct call of the map's own function, and an addition; an LRU
 *				map also marks the entry as used
 *	per-CPU lookups		the same from Linux 6.10 on, a helper's call before
 *	all other operations	a direct call of the map's own function
 *
 * An arena has no helper: its hash table (chains, the kernel's hash function, a lock for
 * each stripe of buckets) is compiled into the loop.
 *
 * Not in the number, because the floors have it: the loop, the choice of the next key
 * (xorshift32, so that neither caches nor prefetchers can know it), the key on the stack,
 * this CPU's counters. Not in it at all: how long a value takes to be used, the consumer
 * of a ring buffer and its wakeup, the first touch of a page.
 *
 * Keys do not depend on values, so a CPU overlaps the cache misses of neighbouring
 * operations: these are costs in a stream of operations, not latencies of a single one.
 *
 * Several CPUs share all resident keys; what they insert and delete are keys of their own.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "arena_hash.bpf.h"
#include "jhash.h"
#include "timing.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define VALUE_WORDS ARENA_WORDS /* of the largest value */

/* Keys that never are in a map begin here; behind them, each CPU's own. */
#define ABSENT (1 << 20)

const volatile __u32 entries = 1000; /* resident keys: 0 to entries - 1 */
const volatile __u32 value_bytes = 16;

/* One CPU's way through the keys, and what came of it. CPUs share no line, nor a pair. */
struct walk {
	__u64 state; /* of xorshift32, never 0 */
	__u64 own; /* the first of the keys that this CPU alone inserts */
	__u64 salt; /* is added to the values that it writes */
	__u64 spare; /* its free node of the arena's table; 0 for none */
	__u64 done; /* operations that ended as they should */
	__u64 failed; /* the others */
	__u64 sum; /* of the values read, or else of the indexes; of a floor with a key, of the keys */
	__u64 value[VALUE_WORDS]; /* the value that it writes */
} __attribute__((aligned(128)));

struct walk walks[TIMING_MAX_CPUS];

/* The value of new task storage. */
struct task_value {
	__u64 first;
	__u64 rest[VALUE_WORDS - 1];
} task_value;

/*
 * Whether storage is made before a batch of misses, untimed, so that none may miss: a miss
 * that does not look would. 0 in batches that count. The storage is taken again afterwards.
 */
__u64 task_given;

/* What an untimed run goes over: COUNT keys from FIRST on, each STEP behind the last. */
__u64 range_base;
__u64 range_first;
__u64 range_step;
__u64 range_count;

struct key {
	__u32 prefix_length; /* as the LPM trie wants it */
	__u32 data;
};

static __always_inline struct walk *this_walk(void)
{
	return &walks[bpf_get_smp_processor_id() & (TIMING_MAX_CPUS - 1)];
}

static __always_inline __u32 next_index(struct walk *walk)
{
	__u32 state = walk->state;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	walk->state = state;
	return (__u64)state * entries >> 32;
}

/* Odd, so that no two keys are the same, and prefixes spread over the whole trie. */
static __always_inline struct key key_of(__u32 index)
{
	struct key key = { .prefix_length = 32, .data = index * 0x9e3779b1 };

	return key;
}

static __always_inline __u64 value_of(__u32 index)
{
	return (index + 1ull) * 0x9e3779b97f4a7c15ull;
}

static __always_inline int count_result(struct walk *walk, _Bool success, __u64 sum)
{
	walk->sum += sum;
	if (success)
		walk->done++;
	else
		walk->failed++;
	return !success;
}

static __always_inline void reset(void *ctx)
{
}

/*
 * Maps with helpers. The size of values, the number of entries and the seed are set when
 * the object is opened.
 */
#define MAP(name, map_type, key_bytes, flags) \
	struct {                              \
		__uint(type, map_type);       \
		__uint(map_flags, flags);     \
		__uint(max_entries, 1);       \
		__uint(key_size, key_bytes);  \
		__uint(value_size, 16);       \
	} name SEC(".maps");

MAP(array, BPF_MAP_TYPE_ARRAY, sizeof(__u32), 0)
MAP(percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(__u32), 0)
MAP(hash, BPF_MAP_TYPE_HASH, sizeof(struct key), 0)
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, sizeof(struct key), 0)
MAP(lru_hash, BPF_MAP_TYPE_LRU_HASH, sizeof(struct key), 0)
MAP(lpm_trie, BPF_MAP_TYPE_LPM_TRIE, sizeof(struct key), BPF_F_NO_PREALLOC)

static __always_inline __u64 *look_up(void *map, _Bool indexed, __u32 index)
{
	struct key key = key_of(index);

	return bpf_map_lookup_elem(map, indexed ? (void *)&index : (void *)&key);
}

static __always_inline int hit(void *map, _Bool indexed)
{
	struct walk *walk = this_walk();
	__u64 *value = look_up(map, indexed, next_index(walk));

	return count_result(walk, value, value ? *value : 0);
}

static __always_inline int miss(void *map, _Bool indexed)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	return count_result(walk, !look_up(map, indexed, ABSENT + index), index);
}

static __always_inline long update(void *map, _Bool indexed, struct walk *walk, __u32 index,
				   __u64 flags)
{
	struct key key = key_of(index);

	walk->value[0] = value_of(index) + walk->salt;
	return bpf_map_update_elem(map, indexed ? (void *)&index : (void *)&key, walk->value,
				   flags);
}

static __always_inline int write(void *map, _Bool indexed)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	return count_result(walk, !update(map, indexed, walk, index, BPF_EXIST), index);
}

static __always_inline int insert_delete(void *map)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);
	struct key key = key_of(walk->own + index);
	long error = update(map, 0, walk, walk->own + index, BPF_NOEXIST);

	error |= bpf_map_delete_elem(map, &key);
	return count_result(walk, !error, index);
}

static __always_inline __u32 in_range(__u32 turn)
{
	return range_base + (range_first + turn * range_step) % entries;
}

static __always_inline void fill_one(void *map, _Bool indexed, __u32 turn)
{
	struct walk *walk = this_walk();

	count_result(walk, !update(map, indexed, walk, range_first + turn, BPF_ANY), 0);
}

static __always_inline void check_one(void *map, _Bool indexed, __u32 turn)
{
	__u64 *value = look_up(map, indexed, in_range(turn));

	count_result(this_walk(), value, value ? *value : 0);
}

#define BODY(name, ctx_t, expression)                      \
	static __always_inline int name##_body(ctx_t *ctx) \
	{                                                  \
		return expression;                         \
	}

#define TIMED(name, expression)               \
	BODY(name, struct xdp_md, expression) \
	TIMED_PROGRAM("xdp", name, struct xdp_md, name##_body, reset)

/* Does something for each turn of the range, untimed. */
#define OVER_RANGE(name, statement)                                  \
	static long name##_turn(__u32 turn, void *unused)            \
	{                                                            \
		statement;                                           \
		return 0;                                            \
	}                                                            \
                                                                     \
	SEC("?xdp")                                                  \
	int name(struct xdp_md *ctx)                                 \
	{                                                            \
		return bpf_loop(range_count, name##_turn, 0, 0) < 0; \
	}

#define MAP_PROGRAMS(map, indexed)                            \
	TIMED(map##_hit, hit(&map, indexed))                  \
	TIMED(map##_miss, miss(&map, indexed))                \
	TIMED(map##_write, write(&map, indexed))              \
	OVER_RANGE(map##_fill, fill_one(&map, indexed, turn)) \
	OVER_RANGE(map##_check, check_one(&map, indexed, turn))

#define KEYED_PROGRAMS(map)  \
	MAP_PROGRAMS(map, 0) \
	TIMED(map##_insert_delete, insert_delete(&map))

MAP_PROGRAMS(array, 1)
MAP_PROGRAMS(percpu_array, 1)
KEYED_PROGRAMS(hash)
KEYED_PROGRAMS(percpu_hash)
KEYED_PROGRAMS(lru_hash)
KEYED_PROGRAMS(lpm_trie)

/*
 * A bloom filter has no keys: its values are pushed and peeked at. Written means pushed, and
 * a miss may be taken for a hit; these are summed, and few.
 */
struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 1);
	__uint(value_size, 16);
} bloom SEC(".maps");

static __always_inline long bloom_peek(struct walk *walk, __u32 index)
{
	walk->value[0] = value_of(index);
	return bpf_map_peek_elem(&bloom, walk->value);
}

static __always_inline int bloom_hit_or_fail(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	return count_result(walk, !bloom_peek(walk, index), index);
}

static __always_inline int bloom_miss_or_pass(void)
{
	struct walk *walk = this_walk();
	long error = bloom_peek(walk, ABSENT + next_index(walk));

	return count_result(walk, 1, !error);
}

static __always_inline long bloom_push(struct walk *walk, __u32 index)
{
	walk->value[0] = value_of(index);
	return bpf_map_push_elem(&bloom, walk->value, BPF_ANY);
}

static __always_inline int bloom_push_next(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	return count_result(walk, !bloom_push(walk, index), index);
}

TIMED(bloom_hit, bloom_hit_or_fail())
TIMED(bloom_miss, bloom_miss_or_pass())
TIMED(bloom_write, bloom_push_next())
OVER_RANGE(bloom_fill, count_result(this_walk(), !bloom_push(this_walk(), range_first + turn), 0))
OVER_RANGE(bloom_check, count_result(this_walk(), !bloom_peek(this_walk(), in_range(turn)), 0))

/* A ring buffer: a record of a value's size is reserved, its first word written, submitted. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring_buffer SEC(".maps");

static __always_inline int submit(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);
	__u64 *record = bpf_ringbuf_reserve(&ring_buffer, value_bytes, 0);

	if (!record)
		return count_result(walk, 0, 0);
	*record = value_of(index) + walk->salt;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return count_result(walk, 1, index);
}

TIMED(ring_buffer_write, submit())

/*
 * Storage of the task that runs the program, with and without some. A hit asks for storage to
 * be made where there is none, as programs do: each CPU's thread is new in each batch.
 */
#define TASK_PROGRAMS(bytes)                                                                    \
	struct value_##bytes {                                                                  \
		__u64 words[bytes / 8];                                                         \
	};                                                                                      \
                                                                                                \
	struct {                                                                                \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                        \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                           \
		__type(key, int);                                                               \
		__type(value, struct value_##bytes);                                            \
	} task_storage_##bytes SEC(".maps"), no_task_storage_##bytes SEC(".maps");              \
                                                                                                \
	TASK_TIMED(task_storage_##bytes##_hit, task_hit(&task_storage_##bytes))                 \
	BODY(task_storage_##bytes##_miss, struct bpf_raw_tracepoint_args,                       \
	     task_miss(&no_task_storage_##bytes))                                               \
                                                                                                \
	static __always_inline void task_storage_##bytes##_give(void *ctx)                      \
	{                                                                                       \
		task_give(&no_task_storage_##bytes);                                            \
	}                                                                                       \
                                                                                                \
	PREPARED_PROGRAM("raw_tp", task_storage_##bytes##_miss, struct bpf_raw_tracepoint_args, \
			 task_storage_##bytes##_give, task_storage_##bytes##_miss_body, reset)  \
                                                                                                \
	SEC("?raw_tp")                                                                          \
	int task_storage_##bytes##_take(struct bpf_raw_tracepoint_args *ctx)                    \
	{                                                                                       \
		return bpf_task_storage_delete(&no_task_storage_##bytes,                        \
					       bpf_get_current_task_btf());                     \
	}                                                                                       \
	TASK_TIMED(task_storage_##bytes##_insert_delete,                                        \
		   task_insert_delete(&no_task_storage_##bytes))

#define TASK_TIMED(name, expression)                           \
	BODY(name, struct bpf_raw_tracepoint_args, expression) \
	TIMED_PROGRAM("raw_tp", name, struct bpf_raw_tracepoint_args, name##_body, reset)

static __always_inline int task_hit(void *map)
{
	struct walk *walk = this_walk();
	__u64 *value = bpf_task_storage_get(map, bpf_get_current_task_btf(), &task_value,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);

	return count_result(walk, value, value ? *value : 0);
}

static __always_inline void task_give(void *map)
{
	if (task_given)
		bpf_task_storage_get(map, bpf_get_current_task_btf(), &task_value,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline int task_miss(void *map)
{
	void *value = bpf_task_storage_get(map, bpf_get_current_task_btf(), 0, 0);

	return count_result(this_walk(), !value, 0);
}

static __always_inline int task_insert_delete(void *map)
{
	struct task_struct *task = bpf_get_current_task_btf();
	void *value = bpf_task_storage_get(map, task, &task_value, BPF_LOCAL_STORAGE_GET_F_CREATE);

	return count_result(this_walk(), value && !bpf_task_storage_delete(map, task), 0);
}

TASK_PROGRAMS(16)
TASK_PROGRAMS(256)

/* A hash table in an arena, with the hash function of the kernel's. */
static __always_inline __u32 bucket_of(__u32 index)
{
	struct key key = key_of(index);

	return arena_bucket(jhash_2words(key.prefix_length, key.data, 0));
}

static __always_inline __u64 arena_key(__u32 index)
{
	struct key key = key_of(index);

	return (__u64)key.data << 32 | key.prefix_length;
}

static __always_inline int arena_look_up_next(_Bool resident)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);
	__u32 wanted = resident ? index : ABSENT + index;
	struct arena_node __arena *node = arena_find(bucket_of(wanted), arena_key(wanted));

	if (resident)
		return count_result(walk, node, node ? node->value[0] : 0);
	return count_result(walk, !node, index);
}

static __always_inline int arena_write_next(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	walk->value[0] = value_of(index) + walk->salt;
	return count_result(walk, arena_replace(bucket_of(index), arena_key(index), walk->value),
			    index);
}

static __always_inline _Bool arena_put(struct walk *walk, __u32 number, __u32 index)
{
	walk->value[0] = value_of(index) + walk->salt;
	return arena_insert(bucket_of(index), arena_key(index), walk->value, number);
}

static __always_inline int arena_insert_delete_next(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk), own = walk->own + index;
	_Bool inserted = arena_put(walk, walk->spare, own);
	__u32 taken = arena_delete(bucket_of(own), arena_key(own));

	return count_result(walk, inserted && taken == walk->spare, index);
}

static __always_inline void arena_check_one(__u32 index)
{
	struct arena_node __arena *node = arena_find(bucket_of(index), arena_key(index));

	count_result(this_walk(), node, node ? node->value[0] : 0);
}

TIMED(arena_hit, arena_look_up_next(1))
TIMED(arena_miss, arena_look_up_next(0))
TIMED(arena_write, arena_write_next())
TIMED(arena_insert_delete, arena_insert_delete_next())
OVER_RANGE(arena_fill,
	   count_result(this_walk(),
			arena_put(this_walk(), range_first + turn + 1, range_first + turn), 0))
OVER_RANGE(arena_check, arena_check_one(in_range(turn)))

/*
 * Floors: nothing but what goes with every operation, without a key, with its index, with it. What is summed is read
 * from where a helper would read it, on the stack, or nothing would show that it is there.
 */
static __always_inline int floor(_Bool indexed, _Bool keyed)
{
	struct walk *walk = this_walk();
	__u32 index = indexed ? next_index(walk) : 0;
	struct key key = key_of(index);
	__u64 sum = 0;

	if (keyed)
		asm volatile("%[sum] = *(u32 *)(%[key] + 4)" /* its data */
			     : [sum] "=r"(sum)
			     : [key] "r"(&key)
			     : "memory");
	else if (indexed)
		asm volatile("%[sum] = *(u32 *)(%[index] + 0)"
			     : [sum] "=r"(sum)
			     : [index] "r"(&index)
			     : "memory");
	return count_result(walk, 1, sum);
}

TIMED(floor_none, floor(0, 0))
TIMED(floor_index, floor(1, 0))
TIMED(floor_key, floor(1, 1))

/* Wrong on purpose, for tests: each is caught by its own proof. */
static __always_inline int wrong_key(void)
{
	struct walk *walk = this_walk();
	__u64 *value = look_up(&hash, 0, next_index(walk) / 2);

	return count_result(walk, value, value ? *value : 0);
}

static __always_inline int wrong_write_nothing(void)
{
	struct walk *walk = this_walk();

	return count_result(walk, 1, next_index(walk));
}

static __always_inline int wrong_insert_and_keep(void)
{
	struct walk *walk = this_walk();
	__u32 index = next_index(walk);

	update(&hash, 0, walk, walk->own, BPF_ANY);
	return count_result(walk, 1, index);
}

TIMED(wrong_hit, wrong_key())
TIMED(wrong_write, wrong_write_nothing())
TIMED(wrong_insert_delete, wrong_insert_and_keep())

/* A miss, and a hit of the bloom filter, that do not look. */
static __always_inline int wrong_look_nowhere(_Bool keyed)
{
	struct walk *walk = this_walk();

	return count_result(walk, 1, keyed ? next_index(walk) : 0);
}

/* A floor without its key. */
TIMED(wrong_floor_key, floor(1, 0))
TIMED(wrong_bloom_hit, wrong_look_nowhere(1))
TASK_TIMED(wrong_task_miss, wrong_look_nowhere(0))
