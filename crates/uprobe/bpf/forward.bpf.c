// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * forward: writes records that user space has put into an array to a tool's own ring buffer, or perf buffers. Run by
 * BPF_PROG_TEST_RUN, once for a batch: the tool's reader, its wake-ups and what it loses stay the kernel's.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

/* Bytes of the records of a batch, and the most of its last one: powers of two. src/tool/forward.rs has the same. */
#define BATCH  (1u << 18)
#define RECORD (1u << 15)

struct {
	__u32 records;
	__u32 refused;
	__u8 data[BATCH + 8 + RECORD];
} batch SEC(".data.batch");

/* The tool's takes the place of one of them. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} perf SEC(".maps");

const volatile _Bool is_ring;

struct step {
	void *context;
	__u32 offset;
};

static long forward_one(__u64 index, struct step *step)
{
	/* The record's bytes, in 8, then the record, then up to the next multiple of 8. */
	__u32 at = step->offset & (BATCH - 1), bytes = *(volatile __u32 *)(batch.data + at);
	void *record = batch.data + at + 8;
	long error;

	bytes &= RECORD - 1;
	step->offset = at + 8 + ((bytes + 7) & ~7u);
	if (is_ring)
		error = bpf_ringbuf_output(&ring, record, bytes, 0);
	else
		error = bpf_perf_event_output(step->context, &perf, BPF_F_CURRENT_CPU, record,
					      bytes);
	if (error)
		batch.refused++;
	return 0;
}

SEC("raw_tp")
int forward(void *context)
{
	struct step step = { context, 0 };

	bpf_loop(batch.records, forward_one, &step, 0);
	return 0;
}
