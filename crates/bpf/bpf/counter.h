/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What counter.bpf.c and counter.rs agree on. */
#ifndef COUNTER_H
#define COUNTER_H

/* What a run does beside being counted. */
enum counter_work {
	COUNTER_NULL = 0, /* nothing */
	COUNTER_MAP = 1, /* writes the process into a per-CPU array */
	COUNTER_BUSY = 2, /* is busy for a known time */
	COUNTER_CALLS = 3, /* counts the runs of one process apart from those of others */
};

/* Spells of business that are timed as one. */
#define COUNTER_SPELLS 64

#endif
