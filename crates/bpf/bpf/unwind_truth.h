/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What unwind_truth.bpf.c and unwind/truth.rs agree on. */
#ifndef UNWIND_TRUTH_H
#define UNWIND_TRUTH_H

/* Addresses that are compared at most: what the kernel's helper takes by default. */
#define TRUTH_DEPTH 127

/* Frames of the helper's stack in which that of the walk may begin: the program's own come first. */
#define TRUTH_OWN 8

/* What is timed. */
enum truth_timed {
	TRUTH_NOTHING = 0, /* two readings of the clock */
	TRUTH_HELPER = 1,
	TRUTH_WALK = 2,
};

#endif
