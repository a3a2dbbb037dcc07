// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs that only tail calls lead to, which write lines of text. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char _license[] SEC("license") = "Dual MIT/GPL";

int print(struct pt_regs *ctx);
int print_arguments(struct pt_regs *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} of_functions SEC(".maps") = {
	.values = { [0] = (void *)&print },
};

/* The kernel wants one kind of program in an array. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} of_sites SEC(".maps") = {
	.values = { [0] = (void *)&print_arguments },
};

SEC("uprobe")
int print(struct pt_regs *ctx)
{
	bpf_printk("called with %lx", PT_REGS_PARM1(ctx));
	return 0;
}

/* None where the arguments of the site are not known. */
SEC("usdt")
int print_arguments(struct pt_regs *ctx)
{
	long five;

	if (!bpf_usdt_arg(ctx, 0, &five) && five == 5)
		bpf_printk("%d arguments, %ld", bpf_usdt_arg_cnt(ctx), five);
	return 0;
}

SEC("uprobe/target:described")
int entry(struct pt_regs *ctx)
{
	bpf_tail_call(ctx, &of_functions, 0);
	return 0;
}

SEC("usdt/target:test:constants")
int site(struct pt_regs *ctx)
{
	bpf_tail_call(ctx, &of_sites, 0);
	return 0;
}
