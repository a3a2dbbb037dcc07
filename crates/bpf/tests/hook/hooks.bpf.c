// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs at hooks of all kinds, as people write them: maps have no sizes, and some targets are their loader's. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, sizeof(__u32));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} starts SEC(".maps");

/* Only this process makes events, where it is set. */
const volatile __u32 traced_process;

static __always_inline int is_other(void)
{
	return traced_process && bpf_get_current_pid_tgid() >> 32 != traced_process;
}

SEC("tracepoint/syscalls/sys_enter_getppid")
int enters(void *ctx)
{
	__u32 key = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	if (!is_other())
		bpf_map_update_elem(&starts, &key, &now, BPF_ANY);
	return 0;
}

SEC("tp/syscalls/sys_exit_getppid")
int exits(void *ctx)
{
	__u32 key = bpf_get_current_pid_tgid();
	__u64 *start = bpf_map_lookup_elem(&starts, &key);

	if (!start || is_other())
		return 0;
	bpf_ringbuf_output(&events, start, sizeof(*start), 0);
	bpf_perf_event_output(ctx, &records, BPF_F_CURRENT_CPU, start, sizeof(*start));
	bpf_get_stackid(ctx, &stacks, 0);
	return 0;
}

__noinline int twice(int value)
{
	bpf_printk("%d", value);
	return value * 2;
}

SEC("raw_tp/sys_enter")
int raw(void *ctx)
{
	return is_other() ? 0 : twice(1) & 0;
}

SEC("?raw_tp/sys_enter")
int raw_for_others(void *ctx)
{
	return 0;
}

SEC("tp_btf/sys_enter")
int typed(void *ctx)
{
	return 0;
}

SEC("uprobe//proc/self/exe:hook_test_marker")
int marked(void *ctx)
{
	return 0;
}

SEC("uretprobe/hook_test_marker")
int returns(void *ctx)
{
	return 0;
}

/* With a name of its own behind the type: libbpf does not take it, other loaders do. */
SEC("perf_event/faults")
int sampled(void *ctx)
{
	return 0;
}

SEC("iter/task")
int each_task(void *ctx)
{
	return 0;
}

SEC("cgroup/sock_create")
int makes_socket(void *ctx)
{
	return 1;
}

SEC("sk_lookup")
int looks_up(void *ctx)
{
	return 1;
}

SEC("netfilter")
int filters(void *ctx)
{
	return 1;
}

SEC("kprobe/dummy_file_read")
int at_dummy(void *ctx)
{
	return 0;
}

SEC("kprobe/no_such_function")
int overrides(void *ctx)
{
	bpf_override_return(ctx, 0);
	return 0;
}

SEC("fentry/no_such_function")
int at_none(void *ctx)
{
	return 0;
}

SEC("tp/sched/no_such_event")
int at_no_event(void *ctx)
{
	return 0;
}

SEC("tp/syscalls/sys_enter_getpgid")
int signals(void *ctx)
{
	bpf_send_signal(0);
	return 0;
}

#define FUNCTION "__x64_sys_getpriority"
#define PATTERN "__x64_sys_getprio*it?"

#define AT(name, section)				\
	SEC(section)					\
	int name(void *ctx)				\
	{						\
		return 0;				\
	}

AT(at_kprobe, "kprobe/" FUNCTION)
AT(inside_kprobe, "kprobe/" FUNCTION "+0x0")
AT(at_kretprobe, "kretprobe/" FUNCTION)
AT(at_kprobe_multi, "kprobe.multi/" PATTERN)
AT(at_kretprobe_multi, "kretprobe.multi/" FUNCTION)
AT(at_kprobe_session, "kprobe.session/" FUNCTION)
AT(at_ksyscall, "ksyscall/getpriority")
AT(at_kretsyscall, "kretsyscall/getpriority")
AT(at_fentry, "fentry/" FUNCTION)
AT(at_fexit, "fexit/" FUNCTION)
/* Functions whose names begin so may be answered for on each kernel. */
AT(at_fmod_ret, "fmod_ret/security_socket_create")
AT(at_alias, "kprobe/__x64_sys_getppid")
AT(at_fentry_dummy, "fentry/dummy_function")
AT(at_lsm, "lsm/socket_create")
AT(at_uprobe_multi, "uprobe.multi//proc/self/exe:hook_test_mark*")
AT(at_uretprobe_multi, "uretprobe.multi//proc/self/exe:hook_test_marker")

SEC("usdt//proc/self/exe:bpfcost:nop")
int BPF_USDT(at_usdt, long buffer)
{
	return buffer & 0;
}

/* The verifier takes it nowhere: its companions are attached without it. */
SEC("tp/syscalls/sys_enter_getsid")
int is_rejected(void *ctx)
{
	return *(volatile int *)8;
}

SEC("xdp")
int looped(void *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
