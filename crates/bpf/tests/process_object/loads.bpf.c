// SPDX-License-Identifier: MIT OR Apache-2.0
/* Programs at a function of the target, and at one of a library beside it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("uprobe/" TARGET ":work")
int on_work(void *context)
{
	return 0;
}

SEC("uprobe/" TARGET "-library.so:library_work")
int on_library_work(void *context)
{
	return 0;
}
