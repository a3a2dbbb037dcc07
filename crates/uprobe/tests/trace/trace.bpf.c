// SPDX-License-Identifier: MIT OR Apache-2.0
/* Lines of text about calls of serve.c's `handle`. The same text is in a map. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define CALLS 64

struct line {
	char text[96];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * CALLS);
	__type(key, __u32);
	__type(value, struct line);
} lines SEC(".maps");

/* In one structure, so that their order is known. */
struct {
	__u64 calls, returned, failed;
} all;

SEC("uprobe")
int on_handle(struct pt_regs *ctx)
{
	const char *text = (const char *)PT_REGS_PARM1(ctx);
	__u64 length = PT_REGS_PARM2(ctx), call = all.calls++;
	__u32 index = 2 * (call % CALLS);
	struct line *line = bpf_map_lookup_elem(&lines, &index);

	if (line)
		BPF_SNPRINTF(line->text, sizeof(line->text), "%3d: \"%s\" of %lx\n", (__u32)call,
			     text, length);
	all.returned =
		all.returned * 3 + bpf_printk("%3d: \"%s\" of %lx\n", (__u32)call, text, length);
	index++;
	line = bpf_map_lookup_elem(&lines, &index);
	if (line)
		BPF_SNPRINTF(line->text, sizeof(line->text), "%-8llu|%+d|%016llX|%c%c|%s%%",
			     call * call, (int)call - 20, call << 40, 'a' + call % 26, 'z',
			     "a constant");
	all.returned = all.returned * 3 + bpf_printk("%-8llu|%+d|%016llX|%c%c|%s%%", call * call,
						     (int)call - 20, call << 40, 'a' + call % 26,
						     'z', "a constant");
	return 0;
}

SEC("uprobe")
int on_many(struct pt_regs *ctx)
{
	__u64 length = PT_REGS_PARM2(ctx);

	if (bpf_printk("%llu and %s", length, PT_REGS_PARM1(ctx)) < 0)
		__sync_fetch_and_add(&all.failed, 1);
	return 0;
}

/* There is nothing at the address, and the format has too few arguments. */
SEC("uprobe")
int on_wrong(struct pt_regs *ctx)
{
	char wrong[] = "%d %d %d %d";

	if (bpf_printk("nothing: '%s'", 8) != 11)
		__sync_fetch_and_add(&all.failed, 1);
	if (bpf_trace_printk(wrong, sizeof(wrong), 1, 2, 3) != -22)
		__sync_fetch_and_add(&all.failed, 1);
	return 0;
}
