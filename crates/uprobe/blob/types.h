/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Numbers of the kernel's interfaces, and what the tool fills in. */
#ifndef TYPES_H
#define TYPES_H

/* Helpers that make no system call: the clocks ask the vDSO. */
#define QUIET	     __attribute__((section(".text.quiet")))
/* Helpers that read memory which may not be there: without the copy in the vDSO, by system calls. */
#define READS	     __attribute__((section(".text.reads")))
/* Those that make other system calls too. */
#define READS_LOUDLY __attribute__((section(".text.loud_reads")))

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long s64;

#define NULL ((void *)0)

/* What the tool fills in: `Environment` in src/translate/helpers/mod.rs. */
struct environment {
	/* The vdso's clock_gettime, or 0. */
	u64 clock_gettime;
	/* 1 where the CPU has RDPID. */
	u64 has_rdpid;
	/* 1 where transactions of the CPU commit. */
	u64 has_rtm;
	/* 1 where the GS base points to the thread's control page; 0 in the tool itself. */
	u64 has_areas;
	/* The target's PID namespace: device and inode. */
	u64 namespace_device;
	u64 namespace_inode;
	/* A copy whose faults end it, and the handler of signals that ends them; or 0. */
	u64 guard_copy;
	u64 guard_handler;
	/* From a thread's FS base to the word that holds its number; 0 where there is none. */
	s64 thread_word;
	/* The control page of the first area, and how many areas follow. */
	u64 first_control;
	u64 areas;
	/* The process, as the tool numbers those that share its tables: from 1. */
	u64 process;
	/* A copy whose faults the kernel ends, or 0 (src/process/vdso). */
	u64 vdso_copy;
	/* 1 where the system calls of a read may be the process's end. */
	u64 denies_reads;
	/* 1 where a thread may let others run (sched_yield). */
	u64 yields;
};

__attribute__((section(".environment"), used))
const volatile struct environment environment = { 0 };

/* `ProbeContext` in src/translate/mod.rs. */
struct context {
	u64 registers[21];
	u64 function;
	u64 cookie;
};

/* Their places in `registers`. */
enum {
	RBP = 4,
	RIP = 16,
	RSP = 19
};

/* A thread's area, of src/process/layout.rs: its stacks, then the page that the GS base points to. */
enum {
	LEVELS = 3,
	LEVEL = 80 << 10,
	PAGE = 4096,
	CONTROL_FRAME = 8,
	CONTROL_LIMIT = 16,
	CONTROL_THREAD = 24,
	CONTROL_GUARD = 32,
	CONTROL_SIGNAL_STACK = 40,
	CONTROL_SIGNAL_STACK_BYTES = 48,
	CONTROL_WORD = 56,
	CONTROL_HOLDER = 64,
	/* From the first level's frame to the control page. */
	FIRST_FRAME_BELOW = 512,
	AREA = 256 << 10,
	CHILD_AREAS = 16,
	HOLDER_BITS = 15,
	FRAME_STACK = 184,
	FRAME_CHECKED = 192,
	FRAME_TURN = 208
};

enum {
	ENOENT = 2,
	ESRCH = 3,
	E2BIG = 7,
	EAGAIN = 11,
	EFAULT = 14,
	EBUSY = 16,
	EEXIST = 17,
	EINVAL = 22,
	ENOSPC = 28
};

/* Signals. */
enum {
	SIGBUS = 7,
	SIGSEGV = 11
};

/* System calls, of asm/unistd_64.h. */
enum {
	RT_SIGACTION = 13,
	RT_SIGPROCMASK = 14,
	SCHED_YIELD = 24,
	GETPID = 39,
	KILL = 62,
	GETUID = 102,
	GETGID = 104,
	SIGALTSTACK = 131,
	PRCTL = 157,
	GETTID = 186,
	CLOCK_GETTIME = 228,
	PROCESS_VM_READV = 310
};

static u64 system_call(u64 number, u64 first, u64 second, u64 third, u64 fourth, u64 fifth)
{
	register u64 r10 asm("r10") = fourth;
	register u64 r8 asm("r8") = fifth;
	register u64 r9 asm("r9") = 0;
	u64 result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

/*
 * Without `memcpy`, which a freestanding program has not: the volatile words keep the compiler from calling it.
 * 8 bytes at once, as the kernel copies values.
 */
static void copy(void *to, const void *from, u64 bytes)
{
	u8 *out = to;
	const u8 *in = from;

	while (bytes >= 8) {
		*(volatile u64 *)out = *(const u64 *)in;
		out += 8;
		in += 8;
		bytes -= 8;
	}
	if (bytes >= 4) {
		*(volatile u32 *)out = *(const u32 *)in;
		out += 4;
		in += 4;
		bytes -= 4;
	}
	while (bytes) {
		*(volatile u8 *)out++ = *in++;
		bytes--;
	}
}

static void clear(void *from, u64 bytes)
{
	u8 *at = from;

	for (; bytes >= 8; bytes -= 8, at += 8)
		*(volatile u64 *)at = 0;
	while (bytes--)
		*(volatile u8 *)at++ = 0;
}

#endif
