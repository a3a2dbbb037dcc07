// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * BPF helpers for user space, as bytes that are copied into the target: no libc, no vector register (the target's are
 * live), no writable data of their own. Each function here whose name is a helper's becomes that helper.
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long s64;

/* What the tool fills in: `Environment` in src/translate/helpers/mod.rs. */
struct environment {
	/* The vdso's clock_gettime, or 0. */
	u64 clock_gettime;
	/* 1 where the CPU has RDPID. */
	u64 has_rdpid;
};

__attribute__((section(".environment"), used))
const volatile struct environment environment = { 0, 0 };

/* `ArrayDescriptor` in src/translate/helpers/mod.rs. */
struct array {
	u64 values;
	u32 value_size;
	u32 stride;
	u32 entries;
	u32 reserved;
};

struct timespec {
	s64 seconds;
	s64 nanoseconds;
};

enum {
	ESRCH = 3,
	E2BIG = 7,
	EEXIST = 17,
	EINVAL = 22
};

/* System calls, of asm/unistd_64.h. */
enum {
	GETPID = 39,
	GETUID = 102,
	GETGID = 104,
	PRCTL = 157,
	GETTID = 186,
	CLOCK_GETTIME = 228
};

enum {
	PR_GET_NAME = 16,
	COMM_BYTES = 16
};

/* Clocks, of linux/time.h. */
enum {
	MONOTONIC = 1,
	MONOTONIC_COARSE = 6,
	BOOTTIME = 7,
	TAI = 11
};

/* Flags of updates, of linux/bpf.h. */
enum {
	ANY,
	NOEXIST,
	EXIST
};

static u64 system_call(u64 number, u64 first, u64 second)
{
	u64 result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(first), "S"(second)
		     : "rcx", "r11", "memory");
	return result;
}

/*
 * Without `memcpy`, which a freestanding program has not: the empty asm keeps the compiler from calling it.
 * 8 bytes at once, as the kernel copies values.
 */
static void copy(u8 *to, const u8 *from, u32 bytes)
{
	while (bytes >= 8) {
		*(volatile u64 *)to = *(const u64 *)from;
		to += 8;
		from += 8;
		bytes -= 8;
	}
	while (bytes) {
		*(volatile u8 *)to++ = *from++;
		bytes--;
	}
}

void *bpf_map_lookup_elem(const struct array *map, const u32 *key)
{
	if (*key >= map->entries)
		return 0;
	return (void *)(map->values + (u64)*key * map->stride);
}

s64 bpf_map_update_elem(const struct array *map, const u32 *key, const void *value, u64 flags)
{
	if (flags > EXIST)
		return -EINVAL;
	if (*key >= map->entries)
		return -E2BIG;
	if (flags == NOEXIST)
		return -EEXIST;
	copy(bpf_map_lookup_elem(map, key), value, map->value_size);
	return 0;
}

/* Arrays have no keys to delete. */
s64 bpf_map_delete_elem(const struct array *map, const u32 *key)
{
	return -EINVAL;
}

static u64 clock(u64 id)
{
	struct timespec now;
	int (*vdso)(u64, struct timespec *) = (void *)environment.clock_gettime;

	/* The vdso asks the kernel where it can't read the clock. */
	if (!vdso || vdso(id, &now))
		system_call(CLOCK_GETTIME, id, (u64)&now);
	return now.seconds * 1000000000 + now.nanoseconds;
}

u64 bpf_ktime_get_ns(void)
{
	return clock(MONOTONIC);
}

u64 bpf_ktime_get_coarse_ns(void)
{
	return clock(MONOTONIC_COARSE);
}

u64 bpf_ktime_get_boot_ns(void)
{
	return clock(BOOTTIME);
}

u64 bpf_ktime_get_tai_ns(void)
{
	return clock(TAI);
}

/* What Linux keeps for user space in IA32_TSC_AUX: the CPU in 12 bits, then the node. */
static u32 cpu_and_node(void)
{
	u32 low, high, both;
	u64 wide;

	if (environment.has_rdpid) {
		asm volatile("rdpid %0" : "=r"(wide));
		return wide;
	}
	asm volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(both));
	return both;
}

u64 bpf_get_smp_processor_id(void)
{
	return cpu_and_node() & 0xfff;
}

u64 bpf_get_numa_node_id(void)
{
	return cpu_and_node() >> 12;
}

/* Numbers in the target's PID namespace; the kernel's helper returns those of the first one. */
u64 bpf_get_current_pid_tgid(void)
{
	return system_call(GETPID, 0, 0) << 32 | system_call(GETTID, 0, 0);
}

/* Numbers in the target's user namespace. */
u64 bpf_get_current_uid_gid(void)
{
	return system_call(GETGID, 0, 0) << 32 | system_call(GETUID, 0, 0);
}

/* As the kernel's: cut where it is too long, zeros behind it. */
s64 bpf_get_current_comm(u8 *buffer, u32 bytes)
{
	u8 name[COMM_BYTES];
	u32 i;
	u8 ended = 0;

	if (!bytes)
		return -EINVAL;
	system_call(PRCTL, PR_GET_NAME, (u64)name);
	for (i = 0; i < bytes; i++) {
		ended |= i >= COMM_BYTES || i == bytes - 1 || !name[i];
		*(volatile u8 *)(buffer + i) = ended ? 0 : name[i];
	}
	return 0;
}

/* The clock and the stack pointer, mixed until each bit depends on all: no state, nothing to share between threads. */
u64 bpf_get_prandom_u32(void)
{
	u32 low, high;
	u64 mixed;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	mixed = ((u64)high << 32 | low) + (u64)__builtin_frame_address(0) * 0x9e3779b97f4a7c15;
	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
	return (u32)(mixed ^ mixed >> 31);
}
