// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs at USDT sites of arguments.c, which send a record where the arguments are those that it has there. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} records SEC(".maps");

SEC("usdt/target:test:memory")
int BPF_USDT(on_memory, long one, long other)
{
	if ((one ^ other) == -1)
		bpf_ringbuf_output(&records, &one, sizeof(one), 0);
	return 0;
}

SEC("usdt/target:test:constants")
int BPF_USDT(on_constants, long five, long negative)
{
	if (five == 5 && negative == -9)
		bpf_ringbuf_output(&records, &five, sizeof(five), 0);
	return 0;
}
