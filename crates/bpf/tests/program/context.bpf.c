// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs whose input is their context. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("raw_tp/sys_enter")
int second_argument(struct bpf_raw_tracepoint_args *ctx)
{
	return ctx->args[1];
}

struct terms {
	__u64 a, b, sum;
};

SEC("syscall")
int compare(struct terms *terms)
{
	return terms->a < terms->b;
}

/* A second run finds what the first one left. */
SEC("syscall")
int sum(struct terms *terms)
{
	terms->sum += terms->a + terms->b;
	return terms->sum;
}

struct __attribute__((packed)) odd {
	__u64 first;
	__u8 rest[3];
};

/* Its last byte is behind the last whole word. */
SEC("syscall")
int flip_last(struct odd *odd)
{
	odd->rest[2] ^= 1;
	return 5;
}

SEC("syscall")
int count_last(struct odd *odd)
{
	return ++odd->rest[2];
}

/* They act on the process that runs them. */
SEC("syscall")
int closes(struct terms *terms)
{
	return bpf_sys_close(terms->a);
}

SEC("syscall")
int makes_map(struct terms *terms)
{
	return bpf_sys_bpf(BPF_MAP_CREATE, terms, sizeof(*terms));
}

SEC("syscall")
int finds_type(struct terms *terms)
{
	static char name[] = "task_struct";

	return bpf_btf_find_by_name_kind(name, sizeof(name), 4, 0) != 0;
}
