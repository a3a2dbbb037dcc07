/* Makes the calls that a supervisor of tools sees, with wrong arguments and memory: valid ones, with some words changed.
 *
 * Arguments: seed, number of calls, and a uprobe: file, offset, process. Prints the number of calls that succeeded, of those that
 * failed, and of those that nobody answered; then whether valid calls still work.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	     4096
#define PAGES	     4
#define UPROBE_MULTI 48
/* Programs and maps that are closed again at once. */
#define CLOSED	     100
/* Places in the memory: arguments of a call, a file's path, instructions, keys. */
#define ARGUMENTS    0
#define PATH	     1024
#define CODE	     2048
#define WORDS	     3072

/* Numbers of `struct perf_event_attr` and `union bpf_attr`: headers may be older. */
struct several {
	uint32_t program, target, kind, flags;
	uint64_t path, offsets, semaphores, cookies;
	uint32_t count, more, pid;
};

struct batch {
	uint64_t from, to, keys, values;
	uint32_t count, map;
	uint64_t flags, more;
};

static const uint32_t commands[] = {
	BPF_MAP_CREATE,	      BPF_MAP_LOOKUP_ELEM,
	BPF_MAP_UPDATE_ELEM,  BPF_MAP_DELETE_ELEM,
	BPF_MAP_GET_NEXT_KEY, BPF_MAP_LOOKUP_AND_DELETE_ELEM,
	BPF_MAP_LOOKUP_BATCH, BPF_MAP_LOOKUP_AND_DELETE_BATCH,
	BPF_MAP_UPDATE_BATCH, BPF_MAP_DELETE_BATCH,
	BPF_PROG_LOAD,	      BPF_PROG_ATTACH,
	BPF_PROG_TEST_RUN,    BPF_RAW_TRACEPOINT_OPEN,
	BPF_LINK_CREATE,      BPF_LINK_UPDATE,
};

enum {
	HASH = 3,
	ARRAY,
	PER_CPU,
	RING,
	PROGRAM,
	EVENT,
	FILES
};

static char *memory;
static const char *path;
static uint64_t offset, state;
static uint32_t pid, type;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1d;
}

static uint64_t below(uint64_t end)
{
	return (next() >> 16) % end;
}

static uint64_t at(size_t place)
{
	return (uint64_t)(memory + place);
}

static uint64_t wrong(void)
{
	switch (below(11)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return -1;
	case 3:
		return at(below(PAGES * PAGE));
	case 4:
		return at(PAGES * PAGE - below(24));
	case 5:
		return at(PAGES * PAGE + below(PAGE));
	case 6:
		return 0xffff888000000000 | below(1 << 30);
	case 7:
		return 1ull << below(64);
	case 8:
		return below(FILES + 3);
	case 9:
		return -below(64);
	default:
		return next();
	}
}

/* The memory as valid calls have it. */
static void prepare(void)
{
	static const struct bpf_insn code[] = {
		{ .code = 0x18, .dst_reg = 1, .src_reg = 1, .imm = HASH },
		{ 0 },
		{ .code = 0xb7 },
		{ .code = 0x95 },
	};

	memset(memory, 0, PAGES * PAGE);
	strcpy(memory + PATH, path);
	memcpy(memory + CODE, code, sizeof(code));
	for (size_t i = 0; i < 16; i++)
		((uint64_t *)(memory + WORDS))[i] = i % 2 ? offset : i;
}

static void put_event(void)
{
	struct perf_event_attr *event = (void *)(memory + ARGUMENTS);

	event->type = type;
	event->size = sizeof(*event);
	event->uprobe_path = at(PATH);
	event->probe_offset = offset;
}

/* The arguments of a valid call, or nearly so. */
static void put_command(uint32_t command)
{
	union bpf_attr *attr = (void *)(memory + ARGUMENTS);
	struct several *several = (void *)attr;
	struct batch *batch = (void *)attr;
	uint32_t map = HASH + below(4);

	switch (command) {
	case BPF_MAP_CREATE:
		attr->map_type = below(2) ? BPF_MAP_TYPE_ARRAY : BPF_MAP_TYPE_HASH;
		attr->key_size = 4;
		attr->value_size = 8;
		attr->max_entries = 8;
		break;
	case BPF_MAP_LOOKUP_BATCH:
	case BPF_MAP_LOOKUP_AND_DELETE_BATCH:
	case BPF_MAP_UPDATE_BATCH:
	case BPF_MAP_DELETE_BATCH:
		batch->from = below(2) ? at(WORDS) : 0;
		batch->to = at(WORDS + 64);
		batch->keys = at(WORDS);
		batch->values = at(WORDS + 128);
		batch->count = below(8);
		batch->map = map;
		break;
	case BPF_PROG_LOAD:
		attr->prog_type = BPF_PROG_TYPE_KPROBE;
		attr->insns = at(CODE);
		attr->insn_cnt = 4;
		attr->license = at(WORDS + 1);
		break;
	case BPF_LINK_CREATE:
		several->program = PROGRAM;
		several->target = EVENT;
		several->kind = BPF_PERF_EVENT;
		if (below(2))
			break;
		several->target = 0;
		several->kind = UPROBE_MULTI;
		several->path = at(PATH);
		several->offsets = at(WORDS + 8);
		several->count = 1 + below(2);
		several->pid = pid;
		break;
	case BPF_PROG_TEST_RUN:
	case BPF_PROG_ATTACH:
	case BPF_RAW_TRACEPOINT_OPEN:
	case BPF_LINK_UPDATE:
		attr->target_fd = attr->attach_bpf_fd = PROGRAM;
		break;
	default:
		attr->map_fd = map;
		attr->key = at(WORDS + 16 * below(4));
		attr->value = at(WORDS + 128);
	}
}

static void damage(size_t from, size_t end)
{
	for (uint64_t times = below(4); times; times--) {
		size_t place = (from + below(end - from)) & ~3ul;
		uint64_t value = wrong();

		memcpy(memory + place, &value, below(2) ? 4 : 8);
	}
}

/* No map of this needs much of the machine's memory. */
static void limit(uint32_t command)
{
	union bpf_attr *attr = (void *)(memory + ARGUMENTS);

	if (command == BPF_MAP_CREATE) {
		attr->key_size &= 63;
		attr->value_size &= 4095;
		attr->max_entries &= 63;
	}
}

static size_t size(size_t valid)
{
	static const size_t sizes[] = { 0,   1,	   7,	     63,	   64,	     65,
					127, PAGE, PAGE + 1, PAGES * PAGE, 1u << 31, -1 };

	return below(4) ? valid : sizes[below(sizeof(sizes) / sizeof(*sizes))];
}

static long call_randomly(void)
{
	uint64_t words = at(ARGUMENTS);
	uint32_t command;

	prepare();
	if (!below(8))
		words = wrong();
	switch (below(16)) {
	case 0:
		put_event();
		damage(ARGUMENTS, ARGUMENTS + sizeof(struct perf_event_attr));
		return syscall(SYS_perf_event_open, words, below(2) ? pid : wrong(),
			       below(2) ? -1 : wrong(), -1, wrong());
	case 1:
		return syscall(SYS_ioctl, below(2) ? EVENT : wrong(), PERF_EVENT_IOC_SET_BPF,
			       below(2) ? PROGRAM : wrong());
	case 2:
		strcpy(memory, below(2) ? "tracefs" : "none");
		return syscall(SYS_mount, 0, at(WORDS), words, below(2) ? 0 : wrong(), wrong());
	case 3:
		strcpy(memory, below(2) ? "debugfs" : "none");
		return syscall(SYS_fsopen, words, below(2));
	}
	command = commands[below(sizeof(commands) / sizeof(*commands))];
	put_command(command);
	damage(ARGUMENTS, ARGUMENTS + 80);
	damage(CODE, CODE + 40);
	damage(WORDS, WORDS + 64);
	limit(command);
	return syscall(SYS_bpf, command, words, size(sizeof(union bpf_attr)));
}

static void need(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

/* A valid call. Returns its result. */
static long call(uint32_t command)
{
	return syscall(SYS_bpf, command, memory + ARGUMENTS, 64);
}

static void make(uint32_t kind, int entries)
{
	union bpf_attr *attr = (void *)(memory + ARGUMENTS);

	memset(attr, 0, sizeof(*attr));
	attr->map_type = kind;
	attr->max_entries = entries;
	attr->key_size = kind == BPF_MAP_TYPE_RINGBUF ? 0 : 4;
	attr->value_size = kind == BPF_MAP_TYPE_RINGBUF ? 0 : 8;
	need(call(BPF_MAP_CREATE), "map");
}

/* Loads a program with a map of its own, and closes both. */
static void load_and_close(void)
{
	struct bpf_insn *code = (void *)(memory + CODE);
	union bpf_attr *attr = (void *)(memory + ARGUMENTS);
	long map, program;

	prepare();
	put_command(BPF_MAP_CREATE);
	attr->map_type = BPF_MAP_TYPE_HASH;
	map = call(BPF_MAP_CREATE);
	need(map, "map");
	prepare();
	code->imm = map;
	put_command(BPF_PROG_LOAD);
	program = call(BPF_PROG_LOAD);
	need(program, "program");
	close(program);
	close(map);
}

/* Changes an element, and reads it. */
static void check(void)
{
	union bpf_attr *attr = (void *)(memory + ARGUMENTS);
	uint64_t *value = (void *)(memory + WORDS + 128);

	/* A full one is no error. */
	for (;;) {
		prepare();
		attr->map_fd = HASH;
		attr->next_key = at(WORDS);
		if (call(BPF_MAP_GET_NEXT_KEY))
			break;
		attr->key = at(WORDS);
		need(call(BPF_MAP_DELETE_ELEM), "delete");
	}
	prepare();
	attr->map_fd = HASH;
	attr->key = at(WORDS);
	attr->value = at(WORDS + 128);
	*value = 7;
	need(call(BPF_MAP_UPDATE_ELEM), "update");
	*value = 0;
	need(call(BPF_MAP_LOOKUP_ELEM), "lookup");
	printf("%lu\n", *value);
}

int main(int count, char **arguments)
{
	unsigned long good = 0, bad = 0, unanswered = 0;
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");

	if (count < 6 || !file || fscanf(file, "%u", &type) != 1)
		return 2;
	fclose(file);
	state = strtoul(arguments[1], NULL, 10) * 2 + 1;
	path = arguments[3];
	offset = strtoul(arguments[4], NULL, 10);
	pid = strtoul(arguments[5], NULL, 10);
	memory = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	munmap(memory + PAGES * PAGE, PAGE);
	prepare();
	make(BPF_MAP_TYPE_HASH, 8);
	make(BPF_MAP_TYPE_ARRAY, 8);
	make(BPF_MAP_TYPE_PERCPU_HASH, 8);
	make(BPF_MAP_TYPE_RINGBUF, PAGE);
	prepare();
	put_command(BPF_PROG_LOAD);
	need(call(BPF_PROG_LOAD), "program");
	prepare();
	put_event();
	need(syscall(SYS_perf_event_open, memory, pid, -1, -1, 0), "event");
	need(ioctl(EVENT, PERF_EVENT_IOC_SET_BPF, PROGRAM), "attach");
	for (int i = 0; i < CLOSED; i++)
		load_and_close();
	for (unsigned long left = strtoul(arguments[2], NULL, 10); left; left--) {
		errno = 0;
		if (call_randomly() >= 0)
			good++;
		else if (errno == ENOSYS)
			unanswered++;
		else
			bad++;
		/* The files that a call has made. */
		syscall(SYS_close_range, FILES, ~0u, 0);
	}
	printf("%lu %lu %lu\n", good, bad, unanswered);
	check();
	return 0;
}
