// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * feeder: sends frames of the kernel's own into a veth. BPF_PROG_TEST_RUN with live frames runs it
 * for each frame, in batches of 64, and hands a batch on before the next one begins; at the end of
 * each the kernel lets its softirqs run, and the veth's other end takes the batch.
 *
 * In the number: a frame's way from the test run through the redirect, the veth and its NAPI up to
 * where IPv4 drops it as another's, and the feeder's own few instructions. The clock is read at
 * the first run of the second batch and at the first run of the last, so that whole batches lie
 * between, the first of them with everything in the state of a batch before. This is the baseline
 * of its family: an XDP program on the other end comes on top.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* bpf_get_current_task_btf is for programs under the GPL. */
char _license[] SEC("license") = "Dual BSD/GPL";

/* Turns of the wait for a tick: at 8 ns and more, longer than between two ticks of 10 ms. */
#define FEEDER_WAIT_TURNS (1 << 22)

struct task_struct {
	unsigned long nvcsw;
} __attribute__((preserve_access_index));

struct feeder_reading {
	__u64 run; /* at which it was read, counted from 0 */
	__u64 clock;
	__u64 ticks; /* of the timer */
	__u64 waits; /* of the thread that runs this */
	__u64 arrivals; /* see below; nothing counts them but a test */
};

__u64 frames; /* runs; user space sets it to 0 before a batch */
__u64 first; /* the run that reads the clock before, counted from 0 */
__u64 last; /* the run that reads it after */
__u64 after_tick; /* whether to wait for a tick of the timer before the first frame */
__u32 interface; /* where frames are sent */
struct feeder_reading before, after;

__u64 arrivals; /* frames that count_arrival saw */

static long tick_step(__u32 turn, void *start)
{
	return bpf_jiffies64() != *(__u64 *)start;
}

static __always_inline void wait_for_tick(void)
{
	__u64 start = bpf_jiffies64();

	bpf_loop(FEEDER_WAIT_TURNS, tick_step, &start, 0);
}

static __always_inline __u64 waits(void)
{
	return bpf_get_current_task_btf()->nvcsw;
}

SEC("?xdp")
int feed(struct xdp_md *ctx)
{
	__u64 run = frames++;

	if (run == first) {
		before.run = run;
		before.arrivals = arrivals;
		before.waits = waits();
		before.ticks = bpf_jiffies64();
		before.clock = bpf_ktime_get_ns();
	} else if (run == last) {
		after.clock = bpf_ktime_get_ns();
		after.ticks = bpf_jiffies64();
		after.waits = waits();
		after.arrivals = arrivals;
		after.run = run;
	} else if (run == 0 && after_tick) {
		wait_for_tick();
	}
	return bpf_redirect(interface, 0);
}

/* On the other end: by it a test sees that each batch has come before the next one begins. */
SEC("?xdp")
int count_arrival(struct xdp_md *ctx)
{
	arrivals++;
	return XDP_PASS;
}
