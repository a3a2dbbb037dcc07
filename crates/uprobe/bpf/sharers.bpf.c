// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sharers: counts, for each watched process, new processes that share its memory (CLONE_VM without CLONE_THREAD: also
 * vfork and posix_spawn), before they run. The probes of that process read the counter.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual BSD/GPL";

/* Of linux/sched.h. */
#define CLONE_VM     0x100
#define CLONE_THREAD 0x10000

/* The deepest PID namespace (MAX_PID_NS_LEVEL). */
#define MAX_LEVELS 32

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
	int nr;
	struct pid_namespace *ns;
} __attribute__((preserve_access_index));

struct pid {
	unsigned int level;
	struct upid numbers[1];
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
} __attribute__((preserve_access_index));

/* A process as the tool's PID namespace numbers it. */
struct number {
	__u32 namespace;
	__u32 pid;
};

/* The watched processes: which counter is theirs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct number);
	__type(value, __u32);
} watched SEC(".maps");

/* They and their children, by the kernel's own number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} family SEC(".maps");

/* How many new processes share the memory, less those that the tool has found gone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __u32 *counter_of_watched(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	unsigned long first = bpf_core_field_offset(pid->numbers);

	for (unsigned int i = 0; i < MAX_LEVELS && i <= level; i++) {
		struct upid *upid = (void *)pid + first + i * bpf_core_type_size(struct upid);
		struct number number = {
			.namespace = BPF_CORE_READ(upid, ns, ns.inum),
			.pid = BPF_CORE_READ(upid, nr),
		};
		__u32 *counter = bpf_map_lookup_elem(&watched, &number);

		if (counter)
			return counter;
	}
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_new_task, struct task_struct *task, unsigned long flags)
{
	__u32 parent = bpf_get_current_pid_tgid() >> 32, child = task->tgid, number;
	__u32 *known;
	__u64 *counter;

	if (flags & CLONE_THREAD)
		return 0;
	known = bpf_map_lookup_elem(&family, &parent);
	if (!known)
		known = counter_of_watched();
	if (!known)
		return 0;
	number = *known;
	/* A child that is not in the family could share its memory unseen. */
	if (!bpf_map_update_elem(&family, &child, &number, BPF_ANY) && !(flags & CLONE_VM))
		return 0;
	counter = bpf_map_lookup_elem(&counters, &number);
	if (counter)
		__sync_fetch_and_add(counter, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 process = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&family, &process);
	return 0;
}
