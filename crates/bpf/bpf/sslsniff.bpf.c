// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sslsniff: the plain text of TLS connections, taken where a process passes it to OpenSSL and gets
 * it back. Study 004 ran one beside nginx. Like bcc's tool of that name it remembers the buffer at
 * a call's entry and copies it at its return, into a ring buffer; unlike that, it copies
 * everything: such tools truncate a call's payload, and what is truncated can't be checked.
 *
 * In the number: the breakpoints at entry and return, the copy, and counts by which a window
 * proves that nothing is missing. Not in it: waking the reader, which polls every few
 * milliseconds.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "sslsniff.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Threads inside a call at once. */
#define MAX_CALLS 10240

/* Room in the ring buffer is asked for in these sizes: the verifier wants a constant. */
#define SMALL_BYTES  256
#define MEDIUM_BYTES 2048

enum direction {
	READ,
	WRITTEN
};

struct record {
	struct sslsniff_head head;
	unsigned char payload[];
};

struct call {
	__u64 start_ns;
	__u64 connection;
	__u64 buffer;
	__u64 moved; /* where the call leaves how much it moved; 0: it returns that */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CALLS);
	__type(key, __u64); /* the thread */
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SSLSNIFF_RING_BYTES);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sslsniff_counts);
} counts SEC(".maps");

/* Whether calls are only counted: then what is left is what the breakpoints cost. */
const volatile __u32 counts_only;

struct sslsniff_head head; /* unused here; gives user space the layout of a head */

/* Adds on this CPU. Atomic: another thread may run in between; only migration is off here. */
static __always_inline void add(__u64 *count, __u64 what)
{
	__sync_fetch_and_add(count, what);
}

static __always_inline struct sslsniff_counts *this_cpu_counts(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key);
}

static __always_inline struct sslsniff_counts *count_hit(void)
{
	struct sslsniff_counts *cpu_counts = this_cpu_counts();

	if (cpu_counts)
		add(&cpu_counts->hits, 1);
	return cpu_counts;
}

static __always_inline void count_lost(__u32 direction, __u64 bytes)
{
	struct sslsniff_counts *cpu_counts = this_cpu_counts();

	if (cpu_counts)
		add(&cpu_counts->lost[direction & 1], bytes);
}

/* What a call moved, on its way to the ring buffer. */
struct transfer {
	struct sslsniff_head head;
	__u64 buffer;
	__u64 length;
};

/* Copies `length` bytes, at most `room`, which the compiler knows. Waking the reader for each
 * would cost the server more than the copy: an interrupt on its CPU, and one on the reader's. */
static __always_inline bool emit_record(struct transfer *transfer, __u64 offset, __u64 length,
					const __u64 room)
{
	struct record *record;

	record = bpf_ringbuf_reserve(&records, sizeof(struct record) + room, 0);
	if (!record)
		return false;
	record->head = transfer->head;
	record->head.offset = offset;
	record->head.length = length;
	if (length > room ||
	    bpf_probe_read_user(record->payload, length, (void *)(transfer->buffer + offset))) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return false;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static long emit_chunk(__u64 index, struct transfer *transfer)
{
	__u64 offset = index * SSLSNIFF_CHUNK_BYTES;
	__u64 length = transfer->length - offset;
	bool done;

	if (length > SSLSNIFF_CHUNK_BYTES)
		length = SSLSNIFF_CHUNK_BYTES;
	if (length <= SMALL_BYTES)
		done = emit_record(transfer, offset, length, SMALL_BYTES);
	else if (length <= MEDIUM_BYTES)
		done = emit_record(transfer, offset, length, MEDIUM_BYTES);
	else
		done = emit_record(transfer, offset, length, SSLSNIFF_CHUNK_BYTES);
	if (!done)
		count_lost(transfer->head.written, length);
	return 0;
}

static __always_inline int enter(__u64 connection, __u64 buffer, __u64 moved)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call call = {
		.start_ns = bpf_ktime_get_ns(),
		.connection = connection,
		.buffer = buffer,
		.moved = moved,
	};

	count_hit();
	if (counts_only)
		return 0;
	bpf_map_update_elem(&calls, &thread, &call, BPF_ANY);
	return 0;
}

/* `result`: bytes, or 1 where the call leaves them elsewhere; not positive: nothing was moved. */
static __always_inline int leave(enum direction direction, int result)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sslsniff_counts *cpu_counts = count_hit();
	struct transfer transfer = {};
	struct call *call;

	if (!cpu_counts || counts_only)
		return 0;
	/* Without a call: it began before this was attached. */
	call = bpf_map_lookup_elem(&calls, &thread);
	if (!call)
		return 0;
	if (result <= 0)
		goto out;
	transfer.length = result;
	if (call->moved &&
	    bpf_probe_read_user(&transfer.length, sizeof(transfer.length), (void *)call->moved))
		goto out;
	transfer.buffer = call->buffer;
	transfer.head.time_ns = bpf_ktime_get_ns();
	transfer.head.took_ns = transfer.head.time_ns - call->start_ns;
	transfer.head.connection = call->connection;
	transfer.head.process = thread >> 32;
	transfer.head.thread = thread;
	transfer.head.written = direction;
	bpf_loop((transfer.length + SSLSNIFF_CHUNK_BYTES - 1) / SSLSNIFF_CHUNK_BYTES, emit_chunk,
		 &transfer, 0);
	add(&cpu_counts->calls[direction], 1);
	add(&cpu_counts->bytes[direction], transfer.length);
out:
	bpf_map_delete_elem(&calls, &thread);
	return 0;
}

/* int SSL_read(SSL *, void *, int), int SSL_write(SSL *, const void *, int) */
SEC("uprobe")
int BPF_UPROBE(sslsniff_enter, __u64 connection, __u64 buffer)
{
	return enter(connection, buffer, 0);
}

/* int SSL_read_ex(SSL *, void *, size_t, size_t *), and the same with SSL_write_ex */
SEC("uprobe")
int BPF_UPROBE(sslsniff_enter_ex, __u64 connection, __u64 buffer, __u64 size, __u64 moved)
{
	return enter(connection, buffer, moved);
}

SEC("uretprobe")
int BPF_URETPROBE(sslsniff_read, int result)
{
	return leave(READ, result);
}

SEC("uretprobe")
int BPF_URETPROBE(sslsniff_written, int result)
{
	return leave(WRITTEN, result);
}
