// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * starts: stops a process where a file that it executes begins, so that probes can be placed before the file's own
 * code runs. One uprobe, hit once a start: at the entry point of a program, or at the first function that the dynamic
 * linker calls in a library.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

/* SIGSTOP can be neither blocked nor handled. */
#define STOP 19

/* Of a process and those that it descends from. */
#define MAX_ANCESTORS 64

struct task_struct {
	struct task_struct *real_parent;
	int tgid;
} __attribute__((preserve_access_index));

/* A stop of a process: the time tells it from those of the same process before. */
struct stop {
	__u64 pid;
	__u64 time;
};

/*
 * What is stopped here and was not let go yet: 1 once it was sent the signal. It outlives the tool, for the process that
 * then lets them go.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct stop);
	__type(value, __u8);
} waiting SEC(".maps");

/* Wakes the tool, which looks at what is waiting. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wakeups SEC(".maps");

/* Processes whose descendants are stopped, and they themselves. All descend from 0, which is no process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} roots SEC(".maps");

/* Starts that were not stopped, as there was no room for them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} missed SEC(".maps");

static bool is_wanted(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	for (int i = 0; i < MAX_ANCESTORS; i++) {
		__u32 pid = BPF_CORE_READ(task, tgid);

		if (bpf_map_lookup_elem(&roots, &pid))
			return true;
		if (!pid)
			return false;
		task = BPF_CORE_READ(task, real_parent);
	}
	return false;
}

SEC("uprobe")
int on_start(void *registers)
{
	struct stop stop = {};
	__u32 first = 0;
	__u64 *count;
	__u8 *is_sent;
	__u8 not_yet = 0;

	if (!is_wanted())
		return 0;
	stop.pid = bpf_get_current_pid_tgid() >> 32;
	stop.time = bpf_ktime_get_ns();
	bpf_map_update_elem(&waiting, &stop, &not_yet, BPF_ANY);
	is_sent = bpf_map_lookup_elem(&waiting, &stop);
	if (is_sent && !bpf_send_signal(STOP)) {
		/* Before it, a process that is let go would stop after that. */
		*is_sent = 1;
		bpf_ringbuf_output(&wakeups, &not_yet, sizeof(not_yet), 0);
		return 0;
	}
	bpf_map_delete_elem(&waiting, &stop);
	count = bpf_map_lookup_elem(&missed, &first);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
