/* Uses each function as it is meant: use OBJECT PID CALLS. The process is tests/targets/calls.c, which makes CALLS calls of
 * `handle` at each step.
 */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <linux/bpf.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	ENTRY,
	RETURN,
	SITE,
	INSIDE,
	PLACES
};

/* At the entry of `handle`, and inside of `sited`. */
#define COOKIE	      5
#define COOKIE_INSIDE 6
#define STEP	      3

struct sums {
	uint64_t entries, values, sum;
};

static struct bpfcost_uprobe *probes;

/* As of a program that has children of its own, and waits for whichever ends. */
static void on_child(int number)
{
	int error = errno;

	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	errno = error;
}

static char *read_file(const char *path, size_t *size)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "rb");

	TRUE(file);
	*size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	return bytes;
}

static uint64_t word(const void *bytes, size_t index)
{
	uint64_t word;

	memcpy(&word, (const char *)bytes + 8 * index, 8);
	return word;
}

static void add(void *context, const void *key, size_t key_size, const void *values,
		size_t value_size, size_t count)
{
	struct sums *sums = context;

	(void)key;
	TRUE(key_size == 4 || key_size == 8);
	EQUAL(value_size, 8);
	sums->entries++;
	sums->values += count;
	for (size_t i = 0; i < count; i++)
		sums->sum += word(values, i);
}

/* The handle can be used in it. */
static void delete_key(void *context, const void *key, size_t key_size, const void *values,
		       size_t value_size, size_t count)
{
	(void)values;
	(void)value_size;
	(void)count;
	EQUAL(bpfcost_uprobe_map_delete(probes, context, key, key_size), 0);
}

/* True for what `handle` returns: that depends on the lowest bits of its first argument. */
static int is_result(uint64_t number)
{
	uint64_t result = 7;

	for (int i = 0; i < 8; i++, result = result * 31 + 5)
		if (number == result)
			return 1;
	return 0;
}

static void count_record(void *context, pid_t pid, const void *record, size_t size)
{
	uint64_t *counts = context;

	TRUE(pid > 0);
	EQUAL(size, 8);
	TRUE(is_result(word(record, 0)));
	counts[0]++;
}

static void count_line(void *context, const struct bpfcost_uprobe_line *line)
{
	uint64_t *counts = context;

	TRUE(line->pid > 0 && line->thread > 0 && line->time > 0);
	TRUE(line->size > 12 && !memcmp(line->text, "called with ", 12));
	counts[0]++;
}

static uint64_t value(const char *map, uint32_t key)
{
	uint64_t value = ~0;

	EQUAL(bpfcost_uprobe_map_get(probes, map, &key, 4, &value, 8), 0);
	return value;
}

static struct sums threads(const char *map, const void *key, size_t size)
{
	struct sums sums = { 0 };

	EQUAL(bpfcost_uprobe_map_threads(probes, map, key, size, add, &sums), 0);
	EQUAL(sums.entries, 1);
	return sums;
}

static void check_info(void)
{
	struct bpfcost_uprobe_map_info info;

	EQUAL(bpfcost_uprobe_map_info(probes, "table", &info), 0);
	EQUAL(info.kind, BPF_MAP_TYPE_HASH);
	EQUAL(info.key_size, 4);
	EQUAL(info.value_size, 8);
	EQUAL(info.max_entries, 64);
	EQUAL(info.read_only, 0);
	EQUAL(bpfcost_uprobe_map_info(probes, ".rodata", &info), 0);
	EQUAL(info.read_only, 1);
}

static void check_maps(const struct bpfcost_uprobe_counts *counts)
{
	uint64_t entry = counts[ENTRY].hits, inside = counts[INSIDE].hits, key = COOKIE;
	uint64_t globals[3], records = 0, lost, addresses[16];
	uint32_t index = 0, number;
	struct sums sums = { 0 };
	size_t depth = 0;

	EQUAL(value("table", COOKIE), entry);
	EQUAL(value("table", COOKIE_INSIDE), inside);
	EQUAL(value("array", 1), entry + inside);
	EQUAL(value("array", 0), 0);
	EQUAL(bpfcost_uprobe_map_each(probes, "table", add, &sums), 0);
	EQUAL(sums.entries, 2);
	EQUAL(sums.values, 2);
	EQUAL(sums.sum, entry + inside);
	sums = (struct sums){ 0 };
	EQUAL(bpfcost_uprobe_map_each(probes, "thread_table", add, &sums), 0);
	EQUAL(sums.entries, 2);
	EQUAL(sums.sum, entry + inside);
	EQUAL(threads("thread_table", &key, 8).sum, entry);
	number = 1;
	EQUAL(threads("thread_array", &number, 4).sum, entry + inside);

	EQUAL(bpfcost_uprobe_map_get(probes, ".bss", &index, 4, globals, 24), 0);
	EQUAL(globals[0], STEP * (entry + inside));
	if (!counts[SITE].missed)
		EQUAL(globals[1], 2 * 49500);
	number = globals[2];
	EQUAL(bpfcost_uprobe_map_stack(probes, "stacks", number, addresses, 16, &depth), 0);
	TRUE(depth > 0 && addresses[0]);
	addresses[1] = 77;
	EQUAL(bpfcost_uprobe_map_stack(probes, "stacks", number, addresses, 1, &depth), 0);
	EQUAL(addresses[1], 77);

	EQUAL(bpfcost_uprobe_records(probes, "ring", count_record, &records), 0);
	EQUAL(bpfcost_uprobe_lost_records(probes, "ring", &lost), 0);
	EQUAL(records + lost, counts[RETURN].hits);
	TRUE(records > 0);
	records = 0;
	EQUAL(bpfcost_uprobe_records(probes, "ring", count_record, &records), 0);
	EQUAL(records, 0);
}

static void check_changes(void)
{
	uint64_t seven = 7, found;
	uint32_t key = 40, index = 0;
	struct sums sums = { 0 };

	EQUAL(bpfcost_uprobe_map_set(probes, "table", &key, 4, &seven, 8), 0);
	EQUAL(value("table", key), 7);
	EQUAL(bpfcost_uprobe_map_delete(probes, "table", &key, 4), 0);
	FAILS(bpfcost_uprobe_map_get(probes, "table", &key, 4, &found, 8), ENOENT);
	FAILS(bpfcost_uprobe_map_delete(probes, "table", &key, 4), ENOENT);
	key = 3;
	EQUAL(bpfcost_uprobe_map_set(probes, "array", &key, 4, &seven, 8), 0);
	EQUAL(value("array", 3), 7);
	EQUAL(bpfcost_uprobe_map_set_threads(probes, "thread_array", 0, &seven, 8), 0);
	sums = threads("thread_array", &index, 4);
	TRUE(sums.values > 0);
	EQUAL(sums.sum, 7 * sums.values);
	EQUAL(bpfcost_uprobe_map_each(probes, "table", delete_key, (void *)"table"), 0);
	sums = (struct sums){ 0 };
	EQUAL(bpfcost_uprobe_map_each(probes, "table", add, &sums), 0);
	EQUAL(sums.entries, 0);
}

/* Every call is in the counts, and what ran is in all maps. */
static void check_calls(const struct bpfcost_uprobe_counts *counts, uint64_t calls)
{
	EQUAL(counts[ENTRY].hits + counts[ENTRY].missed, calls);
	EQUAL(counts[RETURN].hits + counts[RETURN].missed, calls);
	EQUAL(counts[SITE].hits + counts[SITE].missed, calls / 10);
	EQUAL(counts[INSIDE].hits + counts[INSIDE].missed, calls / 10);
	for (int i = 0; i < PLACES; i++)
		TRUE(counts[i].hits > counts[i].missed);
}

static void check_lines(const char *path, pid_t pid, uint64_t calls)
{
	const char *programs[] = { "on_line" };
	struct bpfcost_uprobe_options options = { .programs = programs, .program_count = 1 };
	struct bpfcost_uprobe_place place = { .program = "on_line", .name = "handle" };
	struct bpfcost_uprobe_counts counts;
	struct bpfcost_uprobe *lines;
	uint64_t attachment, seen = 0, lost = 0;

	EQUAL(bpfcost_uprobe_open(path, &options, &lines), 0);
	EQUAL(bpfcost_uprobe_attach(lines, pid, &place, 1, &attachment), 0);
	step("attached");
	EQUAL(bpfcost_uprobe_detach(lines, attachment, &counts, 1), 0);
	EQUAL(counts.hits + counts.missed, calls);
	EQUAL(bpfcost_uprobe_lines(lines, count_line, &seen), 0);
	EQUAL(bpfcost_uprobe_lost_lines(lines, &lost), 0);
	TRUE(seen > 0);
	EQUAL(seen + lost, counts.hits);
	EQUAL(bpfcost_uprobe_close(lines), 0);
}

int main(int count, char **arguments)
{
	static const uint64_t three = STEP;
	const struct bpfcost_uprobe_constant constant = { "step", &three, 8 };
	const char *programs[] = { "on_entry", "on_return", "on_site" };
	const struct bpfcost_uprobe_options options = { programs, 3, &constant, 1 };
	struct bpfcost_uprobe_place places[PLACES] = {
		[ENTRY] = { .program = "on_entry", .name = "handle", .cookie = COOKIE },
		[RETURN] = { .program = "on_return", .name = "handle", .at = BPFCOST_UPROBE_RETURN },
		[SITE] = { .program = "on_site",
			   .provider = "test",
			   .name = "sited",
			   .cookie = 9,
			   .at = BPFCOST_UPROBE_USDT },
		[INSIDE] = { .program = "on_entry",
			     .name = "sited",
			     .offset = 3,
			     .cookie = COOKIE_INSIDE,
			     .at = BPFCOST_UPROBE_OFFSET },
	};
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	struct bpfcost_uprobe_counts counts[PLACES], again[PLACES];
	uint64_t attachment, calls;
	int ended = 7;
	size_t size;
	char file[4096] = "", link[64];
	char *object;
	pid_t pid;

	EQUAL(count, 4);
	pid = atoi(arguments[2]);
	calls = strtoul(arguments[3], NULL, 10);
	sigaction(SIGCHLD, &action, NULL);
	EQUAL(strcmp(bpfcost_uprobe_version(), VERSION), 0);
	EQUAL(strcmp(bpfcost_uprobe_error(), ""), 0);
	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	TRUE(readlink(link, file, sizeof(file) - 1) > 0);
	places[RETURN].file = file;
	object = read_file(arguments[1], &size);
	EQUAL(bpfcost_uprobe_open_bytes("kinds", object, size, &options, &probes), 0);
	EQUAL(bpfcost_uprobe_follow_children(probes), 0);
	EQUAL(bpfcost_uprobe_attach(probes, pid, places, PLACES, &attachment), 0);
	check_info();

	step("attached");
	EQUAL(bpfcost_uprobe_counts(probes, attachment, counts, PLACES), 0);
	check_calls(counts, calls);
	check_maps(counts);
	check_changes();
	EQUAL(bpfcost_uprobe_has_ended(probes, attachment, &ended), 0);
	EQUAL(ended, 0);
	EQUAL(bpfcost_uprobe_detach(probes, attachment, again, PLACES), 0);
	EQUAL(memcmp(counts, again, sizeof(counts)), 0);

	check_lines(arguments[1], pid, calls);

	EQUAL(bpfcost_uprobe_attach(probes, pid, places, PLACES, &attachment), 0);
	step("attached");
	/* The process has ended. */
	EQUAL(bpfcost_uprobe_has_ended(probes, attachment, &ended), 0);
	EQUAL(ended, 1);
	EQUAL(bpfcost_uprobe_counts(probes, attachment, counts, PLACES), 0);
	check_calls(counts, calls);
	EQUAL(bpfcost_uprobe_detach(probes, attachment, NULL, 0), 0);
	EQUAL(bpfcost_uprobe_forget_ended(probes), 0);
	EQUAL(bpfcost_uprobe_close(probes), 0);
	return 0;
}
