/* Calls that are wrong, each of which is an error and nothing else: wrong OBJECT PID, of kinds.bpf.c and calls.c. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#define NOT_UTF8 "\xff\xfe"

static struct bpfcost_uprobe *probes;
static uint64_t attachment, value, lost;
static pid_t pid;
static int called;

static void on_entry(void *context, const void *key, size_t key_size, const void *values,
		     size_t value_size, size_t count)
{
	(void)context;
	(void)key;
	(void)key_size;
	(void)values;
	(void)value_size;
	(void)count;
	called++;
}

static void *count_in_thread(void *context)
{
	struct bpfcost_uprobe_counts counts;

	FAILS(bpfcost_uprobe_counts(probes, attachment, &counts, 1), EBUSY);
	return context;
}

/* Within it, the handle is in use. */
static void on_record(void *context, pid_t from, const void *record, size_t size)
{
	pthread_t thread;

	(void)context;
	(void)record;
	(void)size;
	EQUAL(from, pid);
	if (called++)
		return;
	FAILS(bpfcost_uprobe_close(probes), EBUSY);
	FAILS(bpfcost_uprobe_lost_records(probes, "ring", &lost), EBUSY);
	FAILS(bpfcost_uprobe_records(probes, "ring", on_record, NULL), EBUSY);
	pthread_create(&thread, NULL, count_in_thread, NULL);
	pthread_join(thread, NULL);
}

static void open_wrongly(const char *path)
{
	const char *none[] = { NULL };
	const char *odd[] = { NOT_UTF8 };
	struct bpfcost_uprobe_constant constants[] = { { "step", "1234", 4 } };
	struct bpfcost_uprobe_options options = { .program_count = 1 };
	struct bpfcost_uprobe *never = NULL;

	FAILS(bpfcost_uprobe_open(NULL, NULL, &never), EINVAL);
	FAILS(bpfcost_uprobe_open(NOT_UTF8, NULL, &never), EINVAL);
	FAILS(bpfcost_uprobe_open("/nowhere", NULL, &never), ENOENT);
	FAILS(bpfcost_uprobe_open("/proc/self/exe", NULL, &never), ENOEXEC);
	FAILS(bpfcost_uprobe_open(path, NULL, NULL), EINVAL);
	FAILS(bpfcost_uprobe_open_bytes(NULL, NULL, 10, NULL, &never), EINVAL);
	FAILS(bpfcost_uprobe_open_bytes(NULL, "", 0, NULL, &never), EINVAL);
	FAILS(bpfcost_uprobe_open_bytes(NULL, "", SIZE_MAX, NULL, &never), EINVAL);
	FAILS(bpfcost_uprobe_open_bytes(NULL, "no object", 9, NULL, &never), ENOEXEC);
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	options.programs = none;
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	options.programs = odd;
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	options = (struct bpfcost_uprobe_options){ .constants = constants, .constant_count = 1 };
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	TRUE(strstr(bpfcost_uprobe_error(), "8 bytes, not 4"));
	constants[0] = (struct bpfcost_uprobe_constant){ "stride", "12345678", 8 };
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	constants[0] = (struct bpfcost_uprobe_constant){ "step", NULL, 8 };
	FAILS(bpfcost_uprobe_open(path, &options, &never), EINVAL);
	TRUE(!never);
}

/* A place that is wrong in one way. */
static void attach_to(struct bpfcost_uprobe_place place, int error)
{
	uint64_t never = 77;

	FAILS(bpfcost_uprobe_attach(probes, pid, &place, 1, &never), error);
	EQUAL(never, 77);
}

static void attach_wrongly(void)
{
	const struct bpfcost_uprobe_place good = { .program = "on_return", .name = "handle" };
	struct bpfcost_uprobe_place place = good, two[] = { good, good };
	uint64_t never = 0;

	FAILS(bpfcost_uprobe_attach(NULL, pid, &good, 1, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach((void *)((char *)probes + 1), pid, &good, 1, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, pid, NULL, 1, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, pid, &good, 0, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, pid, &good, SIZE_MAX / 16, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, pid, &good, 1, NULL), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, 0, &good, 1, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, -1, &good, 1, &never), EINVAL);
	FAILS(bpfcost_uprobe_attach(probes, 0x7fffffff, &good, 1, &never), ESRCH);
	place.program = NULL;
	attach_to(place, EINVAL);
	place.program = "on_nothing";
	attach_to(place, ENOENT);
	place = good;
	place.name = NULL;
	attach_to(place, EINVAL);
	place.name = "handled";
	attach_to(place, ENOENT);
	TRUE(strstr(bpfcost_uprobe_error(), "did you mean handle?"));
	place.name = NOT_UTF8;
	attach_to(place, EINVAL);
	place = good;
	place.file = "/etc/passwd";
	attach_to(place, ENOENT);
	place = good;
	place.at = 9;
	attach_to(place, EINVAL);
	place = good;
	place.reserved = 1;
	attach_to(place, EINVAL);
	place = good;
	place.offset = 3;
	attach_to(place, EINVAL);
	place.at = BPFCOST_UPROBE_OFFSET;
	place.offset = 1 << 20;
	FAILS(bpfcost_uprobe_attach(probes, pid, &place, 1, &never), EOPNOTSUPP);
	place = good;
	place.provider = "test";
	attach_to(place, EINVAL);
	place.at = BPFCOST_UPROBE_USDT;
	attach_to(place, ENOENT);
	place.provider = NULL;
	attach_to(place, EINVAL);
	/* All of them, or none. */
	two[1].name = "handled";
	FAILS(bpfcost_uprobe_attach(probes, pid, two, 2, &never), ENOENT);
	EQUAL(never, 0);

	EQUAL(bpfcost_uprobe_attach(probes, pid, &good, 1, &attachment), 0);
}

static void count_wrongly(void)
{
	struct bpfcost_uprobe_counts counts[2];
	int ended;

	FAILS(bpfcost_uprobe_counts(NULL, attachment, counts, 1), EINVAL);
	FAILS(bpfcost_uprobe_counts(probes, attachment + 1, counts, 1), ENOENT);
	FAILS(bpfcost_uprobe_counts(probes, attachment, counts, 2), EINVAL);
	FAILS(bpfcost_uprobe_counts(probes, attachment, counts, 0), EINVAL);
	FAILS(bpfcost_uprobe_counts(probes, attachment, NULL, 1), EINVAL);
	FAILS(bpfcost_uprobe_has_ended(probes, attachment, NULL), EINVAL);
	FAILS(bpfcost_uprobe_has_ended(probes, 0, &ended), ENOENT);
	FAILS(bpfcost_uprobe_detach(probes, attachment, counts, 2), EINVAL);
	FAILS(bpfcost_uprobe_detach(probes, attachment, NULL, 1), EINVAL);
	FAILS(bpfcost_uprobe_follow_children(NULL), EINVAL);
	FAILS(bpfcost_uprobe_forget_ended(NULL), EINVAL);
}

static void read_wrongly(void)
{
	struct bpfcost_uprobe_map_info info;
	uint32_t key = 1, far = 4;
	uint64_t word = 0;
	size_t depth = 77;

	FAILS(bpfcost_uprobe_map_info(probes, "tables", &info), ENOENT);
	FAILS(bpfcost_uprobe_map_info(probes, NULL, &info), EINVAL);
	FAILS(bpfcost_uprobe_map_info(probes, "table", NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "table", &key, 3, &value, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "table", &key, 4, &value, 7), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "table", NULL, 4, &value, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "table", &key, 4, &value, 8), ENOENT);
	FAILS(bpfcost_uprobe_map_get(probes, "array", &word, 8, &value, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "array", &key, 4, NULL, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "array", &far, 4, &value, 8), ENOENT);
	FAILS(bpfcost_uprobe_map_get(probes, "thread_array", &key, 4, &value, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_get(probes, "ring", NULL, 0, NULL, 0), EINVAL);
	FAILS(bpfcost_uprobe_map_each(probes, "array", on_entry, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_each(probes, "ring", on_entry, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_each(probes, "table", NULL, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_threads(probes, "table", &key, 4, on_entry, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_threads(probes, "thread_array", &key, 8, on_entry, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_threads(probes, "thread_array", &far, 4, on_entry, NULL), E2BIG);
	FAILS(bpfcost_uprobe_map_threads(probes, "thread_array", &key, 4, NULL, NULL), EINVAL);
	FAILS(bpfcost_uprobe_map_threads(probes, "thread_table", &word, 8, on_entry, NULL), ENOENT);
	FAILS(bpfcost_uprobe_map_stack(probes, "table", 0, &value, 1, &depth), EINVAL);
	FAILS(bpfcost_uprobe_map_stack(probes, "stacks", 1 << 20, &value, 1, &depth), ENOENT);
	FAILS(bpfcost_uprobe_map_stack(probes, "stacks", 0, &value, 1, NULL), EINVAL);
	EQUAL(depth, 77);
	FAILS(bpfcost_uprobe_records(probes, "table", on_record, NULL), EINVAL);
	FAILS(bpfcost_uprobe_records(probes, "ring", NULL, NULL), EINVAL);
	FAILS(bpfcost_uprobe_lost_records(probes, "table", &lost), EINVAL);
	FAILS(bpfcost_uprobe_lost_records(probes, "ring", NULL), EINVAL);
	FAILS(bpfcost_uprobe_lines(probes, NULL, NULL), EINVAL);
	FAILS(bpfcost_uprobe_lost_lines(probes, NULL), EINVAL);
	EQUAL(called, 0);
}

static void write_wrongly(void)
{
	uint32_t key = 0, far = 4;
	char constants[24] = { 0 };

	FAILS(bpfcost_uprobe_map_set(probes, "table", &key, 4, &value, 9), EINVAL);
	FAILS(bpfcost_uprobe_map_set(probes, "table", &key, 5, &value, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_set(probes, "table", &key, 4, NULL, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_set(probes, "array", &key, 4, &value, 4), EINVAL);
	FAILS(bpfcost_uprobe_map_set(probes, "array", &far, 4, &value, 8), E2BIG);
	FAILS(bpfcost_uprobe_map_set(probes, ".rodata", &key, 4, constants, 24), EPERM);
	FAILS(bpfcost_uprobe_map_delete(probes, "array", &key, 4), EINVAL);
	FAILS(bpfcost_uprobe_map_delete(probes, "table", &key, 2), EINVAL);
	FAILS(bpfcost_uprobe_map_set_threads(probes, "thread_array", 2, &value, 8), E2BIG);
	FAILS(bpfcost_uprobe_map_set_threads(probes, "thread_array", 0, &value, 4), EINVAL);
	FAILS(bpfcost_uprobe_map_set_threads(probes, "thread_array", 0, NULL, 8), EINVAL);
	FAILS(bpfcost_uprobe_map_set_threads(probes, "table", 0, &value, 8), EINVAL);
}

int main(int count, char **arguments)
{
	struct bpfcost_uprobe_counts counts;

	EQUAL(count, 3);
	pid = atoi(arguments[2]);
	open_wrongly(arguments[1]);
	EQUAL(bpfcost_uprobe_close(NULL), 0);
	EQUAL(bpfcost_uprobe_open(arguments[1], NULL, &probes), 0);
	attach_wrongly();
	count_wrongly();
	read_wrongly();
	write_wrongly();
	step("attached");
	EQUAL(bpfcost_uprobe_records(probes, "ring", on_record, NULL), 0);
	TRUE(called > 0);
	EQUAL(bpfcost_uprobe_detach(probes, attachment, &counts, 1), 0);
	EQUAL(counts.hits, called);
	FAILS(bpfcost_uprobe_detach(probes, attachment, &counts, 1), ENOENT);
	/* Closing detaches. */
	EQUAL(bpfcost_uprobe_attach(probes, pid,
				    &(struct bpfcost_uprobe_place){ .program = "on_return",
								    .name = "handle" },
				    1, &attachment),
	      0);
	EQUAL(bpfcost_uprobe_close(probes), 0);
	return 0;
}
