/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SSLSNIFF_H
#define SSLSNIFF_H

/* Most payload of a record, as much as a TLS record holds; a call with more makes several. */
#define SSLSNIFF_CHUNK_BYTES 16384

/* Room for 0.1 s of 640 MB/s: so long may the reader be kept off its CPU by what it watches. */
#define SSLSNIFF_RING_BYTES (64 << 20)

/* What a record of the ring buffer begins with; its payload follows. */
struct sslsniff_head {
	unsigned long long time_ns; /* when the call returned, by CLOCK_MONOTONIC */
	unsigned long long took_ns; /* the call */
	unsigned long long connection; /* address of its SSL structure */
	unsigned long long offset; /* of this payload in what the call moved */
	unsigned int process;
	unsigned int thread;
	unsigned int length; /* bytes of payload */
	unsigned int written; /* 0: SSL_read, 1: SSL_write */
};

/* Counts of one CPU, by direction: [0] SSL_read, [1] SSL_write. */
struct sslsniff_counts {
	unsigned long long hits; /* runs of a program */
	unsigned long long calls[2]; /* that moved something */
	unsigned long long bytes[2]; /* that they moved */
	unsigned long long lost[2]; /* bytes of them that no record has: no room, or not readable */
};

#endif
