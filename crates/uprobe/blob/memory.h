/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reading memory that may not be there. What is certainly there is read as it is: a thread's own area, and the page of
 * its stack that it is on. Elsewhere, the copy in the vDSO reads, whose faults the kernel ends (src/process/vdso).
 *
 * On kernels without it, a transaction of the CPU does, in which a fault only ends it, and no handler runs; where it
 * ends for whatever reason, the kernel reads. Without transactions, a guarded copy (guard.h), else the kernel.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include "guard.h"
#include "identity.h"

/* Bytes that one transaction copies: what it writes has to stay in the CPU's first cache. */
#define TRANSACTION 1024

/* Strings are read in pieces, none of which reaches into another page: the string may end before that one. */
#define PIECE 64

struct vector {
	u64 base;
	u64 bytes;
};

/*
 * Returns whether all bytes were copied. The frame is that which unwinders expect there in the vDSO: RBX, RBP, and the
 * return address, 0 for the end of the stack.
 */
static u8 copy_in_vdso(void *to, u64 from, u64 bytes)
{
	asm volatile("push $0\n\t"
		     "push %%rbp\n\t"
		     "mov %%rsp, %%rbp\n\t"
		     "push %%rbx\n\t"
		     "call *%%rax\n\t"
		     "pop %%rbx\n\t"
		     "pop %%rbp\n\t"
		     "lea 8(%%rsp), %%rsp"
		     : "+D"(to), "+S"(from), "+c"(bytes)
		     : "a"(environment.vdso_copy)
		     : "rdx", "memory");
	return !bytes;
}

static u8 copy_in_transaction(void *to, const void *from, u64 bytes)
{
	u64 words = bytes / 8;

	asm goto("xbegin %l[aborted]" : : : "rax", "memory" : aborted);
	asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	for (bytes &= 7; bytes; bytes--)
		*(volatile u8 *)to++ = *(const u8 *)from++;
	asm volatile("xend" : : : "memory");
	return 1;
aborted:
	return 0;
}

static u8 copy_by_kernel(void *to, u64 from, u64 bytes)
{
	struct vector local = { (u64)to, bytes };
	struct vector remote = { from, bytes };

	return system_call(PROCESS_VM_READV, this_process(), (u64)&local, 1, (u64)&remote, 1) ==
	       bytes;
}

/*
 * Whether bytes are certainly there. Besides the thread's own area, where the context and BPF's stack are, that is the
 * page to which its stack pointer led when the probe took its frame. The probe pushed a register there (in Go, the call
 * pushed the return address), and it will pop that again: if another thread unmaps that page meanwhile, this one dies
 * without the read too. It is the page below where the thread's own data ends at a page's start, the red zone included,
 * and on an alternate stack it is that stack's.
 */
static u8 is_certain(u64 from, u64 bytes)
{
	u64 stack;

	if (!environment.has_areas)
		return 0;
	if (is_own(from))
		return bytes <= control() + PAGE - from;
	stack = *(u64 *)(frame() + FRAME_STACK);
	return !((from ^ stack) & -PAGE) && bytes <= PAGE - (from & (PAGE - 1));
}

/* Whether all bytes could be read. */
static u8 read(void *to, u64 from, u64 bytes)
{
	u64 some;

	if (is_certain(from, bytes)) {
		copy(to, (void *)from, bytes);
		return 1;
	}
	if (environment.vdso_copy)
		return copy_in_vdso(to, from, bytes);
	/* The tool has ended, and this thread was about to enter the probe. */
	if (environment.denies_reads)
		return 0;
	if (!environment.has_rtm) {
		if (bytes && bytes <= MAX_PAGES * PAGE - (from & (PAGE - 1)) &&
		    from + bytes > from && is_guarded())
			return copy_guarded(to, from, bytes);
		return copy_by_kernel(to, from, bytes);
	}
	while (bytes) {
		some = bytes < TRANSACTION ? bytes : TRANSACTION;
		if (!copy_in_transaction(to, (void *)from, some) && !copy_by_kernel(to, from, some))
			return 0;
		to += some;
		from += some;
		bytes -= some;
	}
	return 1;
}

/* As the kernel's: zeros where it fails. */
READS s64 bpf_probe_read_user(void *to, u32 bytes, u64 from)
{
	if (read(to, from, bytes))
		return 0;
	clear(to, bytes);
	return -EFAULT;
}

READS s64 bpf_probe_read(void *to, u32 bytes, u64 from)
{
	return bpf_probe_read_user(to, bytes, from);
}

/* The context lies in the process's own memory here, and USDT's macros read it this way. */
READS s64 bpf_probe_read_kernel(void *to, u32 bytes, u64 from)
{
	return bpf_probe_read_user(to, bytes, from);
}

READS s64 bpf_copy_from_user(void *to, u32 bytes, u64 from)
{
	return bpf_probe_read_user(to, bytes, from);
}

/* The string's bytes with the zero that ends it; cut where there is no room. */
READS s64 bpf_probe_read_user_str(u8 *to, u32 bytes, u64 from)
{
	u32 done = 0, some, i;

	while (done < bytes) {
		some = PAGE - (from + done) % PAGE;
		if (some > PIECE)
			some = PIECE;
		if (some > bytes - done)
			some = bytes - done;
		if (!read(to + done, from + done, some)) {
			clear(to, bytes);
			return -EFAULT;
		}
		for (i = done; i < done + some; i++)
			if (!to[i])
				return i + 1;
		done += some;
	}
	if (bytes)
		to[bytes - 1] = 0;
	return bytes;
}

READS s64 bpf_probe_read_str(u8 *to, u32 bytes, u64 from)
{
	return bpf_probe_read_user_str(to, bytes, from);
}

READS s64 bpf_probe_read_kernel_str(u8 *to, u32 bytes, u64 from)
{
	return bpf_probe_read_user_str(to, bytes, from);
}

QUIET s64 bpf_strncmp(const u8 *one, u32 bytes, const u8 *other)
{
	u32 i;

	for (i = 0; i < bytes; i++) {
		if (one[i] != other[i])
			return one[i] < other[i] ? -1 : 1;
		if (!one[i])
			break;
	}
	return 0;
}

#endif
