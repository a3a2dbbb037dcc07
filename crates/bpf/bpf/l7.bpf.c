// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * l7: the kernel side of an observability agent that reconstructs the requests of a server: the
 * first bytes of every call that reads or writes a connection, sent through a ring buffer. After
 * the Go agent of study 004.
 *
 * Three parts, of which user space loads the first, the first two, or all:
 * - the system calls by which Go's net package uses connections (read, write, accept4, close), at their
 *   tracepoints, for the processes that are asked for; not in it: sendfile and writev, which answers from
 *   files and from lists of buffers take;
 * - crypto/tls's Read, Write and Close, by uprobes at their entries and at each of their return
 *   instructions: a return probe would change the return address on a stack that Go's runtime walks and
 *   moves. Go passes arguments and results in registers (its ABIInternal): on x86-64 AX, BX, CX, ...;
 *   R14 is the goroutine. Calls are matched by goroutine, since goroutines move between threads;
 * - the runtime's casgstatus, which shows which goroutine a thread runs, so that system calls too can be
 *   matched by goroutine.
 *
 * A payload is copied when its call returns. A buffer on a goroutine's own stack, moved meanwhile, would be
 * read where it was: net/http has its buffers elsewhere.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define PAYLOAD_BYTES 512 /* room for the head of a usual request */
#define RING_BYTES    (16 << 20) /* some 29,000 calls: what comes while the reader does not run */
#define RUNNING	      2 /* what a goroutine is while a thread runs it (_Grunning of Go's runtime) */

char _license[] SEC("license") = "Dual BSD/GPL";

enum l7_kind {
	L7_READ,
	L7_WRITE,
	L7_CLOSE,
};

struct l7_event {
	__u64 connection; /* a number, or the address of a tls.Conn */
	__u64 time_ns; /* when the call returned (CLOCK_MONOTONIC) */
	__u64 goroutine; /* its address; 0 where that is not known */
	__u64 length; /* bytes that the call moved */
	__u32 process;
	__u32 tls; /* whether it is of crypto/tls */
	enum l7_kind kind;
	__u32 kept; /* bytes of the payload that are here */
	__u8 payload[PAYLOAD_BYTES];
};

/* So that user space knows the type. */
const struct l7_event *l7_event_type;

struct l7_call {
	__u64 connection;
	__u64 buffer;
	__u64 goroutine;
	enum l7_kind kind;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} l7_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u8);
} l7_processes SEC(".maps"); /* those that are asked for */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); /* process, descriptor */
	__type(value, __u64);
} l7_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* the thread */
	__type(value, struct l7_call);
} l7_calls SEC(".maps"); /* system calls that did not return yet */

struct l7_routine {
	__u64 goroutine;
	__u64 process; /* goroutines of two programs may lie at the same address */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct l7_routine);
	__type(value, struct l7_call);
} l7_tls_calls SEC(".maps"); /* the same of crypto/tls */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* the thread */
	__type(value, __u64);
} l7_goroutines SEC(".maps"); /* what each thread runs */

struct l7_count {
	__u64 lost; /* events that there was no room for */
	__u64 switches; /* goroutines that began to run */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct l7_count);
} l7_counts SEC(".maps");

/* The process namespace whose numbers are used; 0: the machine's. */
const volatile __u64 namespace_device;
const volatile __u64 namespace_inode;

/* Connections accepted so far: numbers each one, because descriptors are reused. */
__u64 accepted;

/* What a system call's tracepoint hands over, at its entry and at its exit. */
struct l7_enter {
	__u64 common;
	__u64 number;
	__u64 arguments[6];
};

struct l7_exit {
	__u64 common;
	__u64 number;
	__s64 result;
};

/* The process in its upper half, the thread in its lower, as user space numbers them. */
static __always_inline __u64 thread(void)
{
	struct bpf_pidns_info in = {};

	if (!namespace_inode)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &in, sizeof(in)))
		return 0;
	return (__u64)in.tgid << 32 | in.pid;
}

static __always_inline bool is_watched(__u64 thread)
{
	__u32 process = thread >> 32;

	return bpf_map_lookup_elem(&l7_processes, &process) != NULL;
}

static __always_inline __u64 descriptor(__u64 thread, __u64 number)
{
	return (thread >> 32) << 32 | (__u32)number;
}

static __always_inline struct l7_count *count(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&l7_counts, &key);
}

/* User space looks every few milliseconds: waking it for each call would cost the server more than the
 * call itself. */
static __always_inline void emit_event(const struct l7_call *call, __u64 thread, __u64 length,
				       bool tls)
{
	struct l7_event *event = bpf_ringbuf_reserve(&l7_events, sizeof(*event), 0);

	if (!event) {
		struct l7_count *counted = count();

		if (counted)
			counted->lost++;
		return;
	}
	event->connection = call->connection;
	event->time_ns = bpf_ktime_get_ns();
	event->goroutine = call->goroutine;
	event->length = length;
	event->process = thread >> 32;
	event->kind = call->kind;
	event->tls = tls;
	if (length > PAYLOAD_BYTES)
		length = PAYLOAD_BYTES;
	if (length && bpf_probe_read_user(event->payload, length, (void *)call->buffer))
		length = 0;
	event->kept = length;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* System calls. */

static __always_inline int enter_call(__u64 number, __u64 buffer, enum l7_kind kind)
{
	__u64 pid_tgid = thread();
	__u64 *connection, *goroutine;
	struct l7_call call;
	__u64 at;

	if (!is_watched(pid_tgid))
		return 0;
	at = descriptor(pid_tgid, number);
	connection = bpf_map_lookup_elem(&l7_connections, &at);
	if (!connection)
		return 0;
	goroutine = bpf_map_lookup_elem(&l7_goroutines, &pid_tgid);
	/* Its padding is written to a map too. */
	__builtin_memset(&call, 0, sizeof(call));
	call.connection = *connection;
	call.buffer = buffer;
	call.goroutine = goroutine ? *goroutine : 0;
	call.kind = kind;
	bpf_map_update_elem(&l7_calls, &pid_tgid, &call, BPF_ANY);
	return 0;
}

SEC("?tracepoint")
int l7_enter_read(struct l7_enter *ctx)
{
	return enter_call(ctx->arguments[0], ctx->arguments[1], L7_READ);
}

SEC("?tracepoint")
int l7_enter_write(struct l7_enter *ctx)
{
	return enter_call(ctx->arguments[0], ctx->arguments[1], L7_WRITE);
}

SEC("?tracepoint")
int l7_exit_call(struct l7_exit *ctx)
{
	__u64 pid_tgid = thread();
	struct l7_call *call = bpf_map_lookup_elem(&l7_calls, &pid_tgid);

	if (!call)
		return 0;
	if (ctx->result > 0)
		emit_event(call, pid_tgid, ctx->result, false);
	bpf_map_delete_elem(&l7_calls, &pid_tgid);
	return 0;
}

SEC("?tracepoint")
int l7_exit_accept(struct l7_exit *ctx)
{
	__u64 pid_tgid = thread();
	__u64 at, number;

	if (ctx->result < 0 || !is_watched(pid_tgid))
		return 0;
	at = descriptor(pid_tgid, ctx->result);
	number = __sync_fetch_and_add(&accepted, 1);
	bpf_map_update_elem(&l7_connections, &at, &number, BPF_ANY);
	return 0;
}

SEC("?tracepoint")
int l7_enter_close(struct l7_enter *ctx)
{
	__u64 pid_tgid = thread();
	struct l7_call call = { .kind = L7_CLOSE };
	__u64 *connection;
	__u64 at;

	if (!is_watched(pid_tgid))
		return 0;
	at = descriptor(pid_tgid, ctx->arguments[0]);
	connection = bpf_map_lookup_elem(&l7_connections, &at);
	if (!connection)
		return 0;
	call.connection = *connection;
	bpf_map_delete_elem(&l7_connections, &at);
	emit_event(&call, pid_tgid, 0, false);
	return 0;
}

/* Functions of Go. */

struct l7_registers {
	__u64 first; /* argument or result */
	__u64 second;
	__u64 third;
	__u64 goroutine;
};

static __always_inline struct l7_registers registers(const struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return (struct l7_registers){ ctx->rax, ctx->rbx, ctx->rcx, ctx->r14 };
#else
	return (struct l7_registers){}; /* user space refuses other machines */
#endif
}

SEC("?uprobe.multi")
int l7_tls_enter(struct pt_regs *ctx)
{
	struct l7_registers regs = registers(ctx);
	__u64 pid_tgid = thread();
	struct l7_routine routine = { regs.goroutine, pid_tgid >> 32 };
	struct l7_call call;

	__builtin_memset(&call, 0, sizeof(call));
	call.connection = regs.first;
	call.buffer = regs.second;
	call.goroutine = regs.goroutine;
	call.kind = bpf_get_attach_cookie(ctx);
	if (call.kind == L7_CLOSE)
		emit_event(&call, pid_tgid, 0, true);
	else
		bpf_map_update_elem(&l7_tls_calls, &routine, &call, BPF_ANY);
	return 0;
}

SEC("?uprobe.multi")
int l7_tls_return(struct pt_regs *ctx)
{
	struct l7_registers regs = registers(ctx);
	__u64 pid_tgid = thread();
	struct l7_routine routine = { regs.goroutine, pid_tgid >> 32 };
	struct l7_call *call = bpf_map_lookup_elem(&l7_tls_calls, &routine);

	if (!call)
		return 0;
	if ((__s64)regs.first > 0)
		emit_event(call, pid_tgid, regs.first, true);
	bpf_map_delete_elem(&l7_tls_calls, &routine);
	return 0;
}

/* casgstatus(goroutine, old, new) */
SEC("?uprobe.multi")
int l7_goroutine(struct pt_regs *ctx)
{
	struct l7_registers regs = registers(ctx);
	struct l7_count *counted;
	__u64 pid_tgid;

	if ((__u32)regs.third != RUNNING)
		return 0;
	pid_tgid = thread();
	bpf_map_update_elem(&l7_goroutines, &pid_tgid, &regs.first, BPF_ANY);
	counted = count();
	if (counted)
		counted->switches++;
	return 0;
}
