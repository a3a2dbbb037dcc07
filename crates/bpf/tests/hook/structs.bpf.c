// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that the kernel calls by structs of functions. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct task_struct;
struct sock;

struct sched_ext_ops {
	int (*select_cpu)(struct task_struct *task, int cpu, unsigned long flags);
	void (*running)(struct task_struct *task);
	unsigned long long flags;
	char name[128];
};

struct tcp_congestion_ops {
	unsigned int (*ssthresh)(struct sock *sock);
	unsigned int (*undo_cwnd)(struct sock *sock);
	char name[16];
};

SEC("struct_ops/begins")
void begins(void *ctx)
{
}

SEC("struct_ops")
unsigned int threshold(void *ctx)
{
	return 2;
}

SEC("struct_ops.s/nowhere")
int nowhere(void *ctx)
{
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops scheduler = {
	.running = (void *)begins,
	.name = "scheduler",
};

SEC(".struct_ops")
struct tcp_congestion_ops congestion = {
	.ssthresh = (void *)threshold,
	.undo_cwnd = (void *)threshold,
	.name = "congestion",
};

char LICENSE[] SEC("license") = "GPL";
