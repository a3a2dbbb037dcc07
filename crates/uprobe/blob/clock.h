/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Clocks. */
#ifndef CLOCK_H
#define CLOCK_H

#include "types.h"

struct timespec {
	s64 seconds;
	s64 nanoseconds;
};

/* Of linux/time.h. */
enum {
	MONOTONIC = 1,
	MONOTONIC_COARSE = 6,
	BOOTTIME = 7,
	TAI = 11
};

static u64 clock(u64 id)
{
	struct timespec now;
	int (*vdso)(u64, struct timespec *) = (void *)environment.clock_gettime;

	/* The vdso asks the kernel where it can't read the clock. */
	if (!vdso || vdso(id, &now))
		system_call(CLOCK_GETTIME, id, (u64)&now, 0, 0, 0);
	return now.seconds * 1000000000 + now.nanoseconds;
}

#endif
