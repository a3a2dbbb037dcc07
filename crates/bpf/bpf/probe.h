/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PROBE_H
#define PROBE_H

/* An event of the ring buffer: 64 bytes, and 8 of header that the kernel adds. */
#define PROBE_EVENT_WORDS 8

struct probe_event {
	unsigned long long word[PROBE_EVENT_WORDS];
};

/* Some 116,000 events: a batch of 10 ms at 86 ns each. */
#define PROBE_RING_BYTES (8 << 20)

/* As deep as bpftrace looks by default. */
#define PROBE_STACK_DEPTH 127

/*
 * Size of the attributes that the driver of security_bpf() hands to bpf(2). No other program
 * passes so odd a size with BPF_MAP_DELETE_ELEM: libbpf passes all of the union's part.
 */
#define PROBE_CALL_BYTES 44

#endif
