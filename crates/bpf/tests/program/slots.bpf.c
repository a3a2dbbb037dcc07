// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* An array of programs, filled by the source. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

SEC("xdp")
int in_slot(struct xdp_md *ctx)
{
	return XDP_DROP;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} slots SEC(".maps") = {
	.values = { [0] = (void *)&in_slot },
};

/* It makes no tail call. */
SEC("xdp")
int apart(struct xdp_md *ctx)
{
	return XDP_PASS;
}
