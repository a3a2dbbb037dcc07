// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A plugin of QEMU that writes down which instructions a guest executes, for the host to read from a pipe.
//
// It sees code that QEMU translates one instruction at a time, as the monitor's one-insn-per-tb has it: the host switches
// that on for a recording, so that all else runs as fast as without the plugin. Both files are in QEMU's folder:
//
//   tracer-control  one number: that of the recording under way, or 0. The host writes it.
//   instructions    the pipe. Words of 32 bits: an instruction that is executed, by its number; before its first time in a
//                   recording, DEFINES with its number of bytes, its number, its address (two words) and its bytes (four
//                   words); at the end of a recording, END.
//
// Of the instructions in user mode only the last is written before one of the kernel. No C library is needed, so that any
// QEMU can load it. QEMU's interface is declared here as far as it is used; versions 1 to 5 have it.

#include <stdint.h>

#define DEFINES 0x80000000u
#define END	0xffffffffu
// The table of instructions was full, which ends a recording too.
#define FULL	0xfffffffeu

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

struct qemu_info {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
};

typedef void (*translated_fn)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*executed_fn)(unsigned int cpu, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_fn translated);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_fn executed,
					    int flags, void *data);
unsigned long qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block,
						 unsigned long at);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
unsigned long qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
// Before version 3 of the interface, it takes the instruction alone and returns where the bytes are.
uintptr_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *bytes,
				unsigned long room);

// That of QEMU 9 and later, or of all before: each refuses the other.
__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

struct instruction {
	uint64_t address;
	uint8_t bytes[16];
	uint32_t length;
	// The last recording that has its definition.
	uint32_t recording;
};

#define MOST_INSTRUCTIONS (1u << 22)
#define BUFFER_WORDS	  (1u << 14)
// Words of a definition and of an instruction of either mode after it.
#define RESERVE		  32

static struct instruction *table;
static uint32_t known;
static int is_full;
static volatile uint32_t *control;
static uint32_t recording;
static int interface;
static int out = -1;
static uint32_t buffer[BUFFER_WORDS];
static uint32_t filled;
// The last one in user mode, which no one of the kernel has followed yet.
static struct instruction *last_user;

static long system_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
#error "system calls of this architecture are not known"
#endif
}

#if defined(__x86_64__)
#define SYS_WRITE  1
#define SYS_OPENAT 257
#define SYS_MMAP   9
#else
#define SYS_WRITE  64
#define SYS_OPENAT 56
#define SYS_MMAP   222
#endif

#define AT_FDCWD      (-100)
#define O_RDONLY      0
#define O_WRONLY      1
#define PROT_READ     1
#define PROT_WRITE    2
#define MAP_SHARED    1
#define MAP_PRIVATE   2
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define EINTR	      4

static int open_file(const char *path, int flags)
{
	return (int)system_call(SYS_OPENAT, AT_FDCWD, (long)path, flags, 0, 0, 0);
}

static void *map(unsigned long bytes, int protection, int flags, int file)
{
	long at = system_call(SYS_MMAP, 0, (long)bytes, protection, flags, file, 0);

	return at < 0 && at > -4096 ? 0 : (void *)at;
}

static void flush(void)
{
	const char *from = (const char *)buffer;
	unsigned long left = filled * sizeof(buffer[0]);

	filled = 0;
	while (left && out >= 0) {
		long written = system_call(SYS_WRITE, out, (long)from, (long)left, 0, 0, 0);

		if (written == -EINTR)
			continue;
		// Nobody reads any more.
		if (written <= 0)
			return;
		from += written;
		left -= (unsigned long)written;
	}
}

static void put(uint32_t word)
{
	buffer[filled++] = word;
}

static void switch_to(uint32_t wanted)
{
	if (recording) {
		// Instructions that had no room are missing.
		put(is_full ? FULL : END);
		flush();
	}
	if (wanted && out < 0)
		out = open_file("instructions", O_WRONLY);
	last_user = 0;
	recording = out < 0 ? 0 : wanted;
}

static void write_down(struct instruction *one)
{
	uint32_t number = (uint32_t)(one - table);

	if (one->recording != recording) {
		const uint32_t *words = (const uint32_t *)one->bytes;

		one->recording = recording;
		put(DEFINES | one->length);
		put(number);
		put((uint32_t)one->address);
		put((uint32_t)(one->address >> 32));
		for (int i = 0; i < 4; i++)
			put(words[i]);
	}
	put(number);
	if (filled > BUFFER_WORDS - RESERVE)
		flush();
}

static int is_recording(void)
{
	uint32_t wanted = *control;

	if (wanted != recording)
		switch_to(wanted);
	return recording != 0;
}

static void executed_in_user_mode(unsigned int cpu, void *data)
{
	(void)cpu;
	if (is_recording())
		last_user = data;
}

static void executed(unsigned int cpu, void *data)
{
	(void)cpu;
	if (!is_recording())
		return;
	if (last_user) {
		write_down(last_user);
		last_user = 0;
	}
	write_down(data);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	struct qemu_plugin_insn *insn;
	struct instruction *one;
	uintptr_t data;

	(void)id;
	if (qemu_plugin_tb_n_insns(block) != 1)
		return;
	if (known == MOST_INSTRUCTIONS) {
		is_full = 1;
		return;
	}
	insn = qemu_plugin_tb_get_insn(block, 0);
	one = &table[known++];
	one->address = qemu_plugin_insn_vaddr(insn);
	one->length = (uint32_t)qemu_plugin_insn_size(insn);
	if (one->length > sizeof(one->bytes))
		one->length = sizeof(one->bytes);
	data = qemu_plugin_insn_data(insn, one->bytes, one->length);
	if (interface < 3)
		for (uint32_t i = 0; i < one->length; i++)
			one->bytes[i] = ((const uint8_t *)data)[i];
	// The kernel is in the upper half on every architecture that is counted here.
	qemu_plugin_register_vcpu_insn_exec_cb(
		insn, one->address >> 63 ? executed : executed_in_user_mode, 0, one);
}

__attribute__((visibility("default"))) int
qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
	int file = open_file("tracer-control", O_RDONLY);

	(void)argc;
	(void)argv;
	interface = info->version.cur;
	table = map(MOST_INSTRUCTIONS * sizeof(*table), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (file < 0 || !table)
		return -1;
	control = map(4096, PROT_READ, MAP_SHARED, file);
	if (!control)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
