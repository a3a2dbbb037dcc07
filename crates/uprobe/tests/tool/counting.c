// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * counting: a tool as people write them with libbpf, and that knows nothing of user space. Prints what it attached, and
 * at "dump" all that its maps and buffers hold.
 *
 * counting OBJECT PID FILE OFFSET [EXTRA]: EXTRA is one more program to load and attach. SEMAPHORE in the environment is the
 * offset in the file of a semaphore.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define WEIGHTS	     7
/* Milliseconds of a look for records. */
#define POLL_MS	     100
/* BPF_TRACE_UPROBE_MULTI, which older headers lack. */
#define UPROBE_MULTI 48

static int records, samples;

static struct bpf_object *object;

static int map(const char *name)
{
	return bpf_object__find_map_fd_by_name(object, name);
}

static void print_bytes(const unsigned char *bytes, int number)
{
	for (int i = 0; i < number; i++)
		printf("%02x", bytes[i]);
}

static int on_record(void *kind, void *data, size_t bytes)
{
	*(*(char *)kind == 'r' ? &records : &samples) += 1;
	printf("record %s ", (char *)kind);
	print_bytes(data, 40);
	printf(" %zu\n", bytes >= 40 ? (size_t)40 : bytes);
	return 0;
}

static void on_sample(void *kind, int cpu, void *data, __u32 bytes)
{
	on_record(kind, data, bytes);
}

static void on_lost(void *kind, int cpu, __u64 number)
{
	printf("lost %llu\n", number);
}

/* Each entry by its key; values of CPUs summed. */
static void dump(const char *name, int cpus)
{
	int fd = map(name), has_key = 0;
	__u32 key, next;
	__u64 values[256], sum;

	while (!bpf_map_get_next_key(fd, has_key ? &key : NULL, &next)) {
		key = next;
		has_key = 1;
		if (bpf_map_lookup_elem(fd, &key, values)) {
			printf("%s %u is not there: %d\n", name, key, errno);
			continue;
		}
		sum = 0;
		for (int i = 0; i < (cpus ? cpus : 1); i++)
			sum += values[i];
		printf("%s %u %llu\n", name, key, sum);
	}
	printf("%s ends with %d\n", name, errno);
}

/* Their numbers are others in user space. */
static void dump_stacks(void)
{
	__u32 key, next;
	__u64 frames[2];
	int has_key = 0;

	while (!bpf_map_get_next_key(map("stacks"), has_key ? &key : NULL, &next)) {
		key = next;
		has_key = 1;
		if (bpf_map_lookup_elem(map("stacks"), &key, frames))
			continue;
		printf("stack");
		for (int i = 0; i < 2; i++)
			printf(" %llx", frames[i]);
		printf("\n");
	}
}

static void dump_batch(void)
{
	__u32 keys[64], place, count = 2;
	__u64 values[64];
	void *from = NULL;
	int error;

	do {
		error = bpf_map_lookup_batch(map("by_rest"), from, &place, keys, values, &count,
					     NULL);
		for (__u32 i = 0; i < count; i++)
			printf("batch %u %llu\n", keys[i], values[i]);
		from = &place;
		/* The kernel may want more room for a bucket. */
		count = error == -ENOSPC ? 64 : 2;
	} while (!error || error == -ENOSPC);
	printf("batch ends with %d\n", error);
}

/* What commands for a table answer. */
static void try_commands(void)
{
	int fd = map("by_rest");
	__u32 key = 0, other = 1000, late = 1001;
	__u64 value = 5, values[256];

	printf("noexist %d\n", bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST));
	printf("exist %d\n", bpf_map_update_elem(fd, &other, &value, BPF_EXIST));
	printf("any %d\n", bpf_map_update_elem(fd, &other, &value, BPF_ANY));
	printf("lookup %d\n", bpf_map_lookup_elem(fd, &other, &value));
	printf("delete %d\n", bpf_map_delete_elem(fd, &other));
	printf("again %d\n", bpf_map_delete_elem(fd, &other));
	printf("missing %d\n", bpf_map_lookup_elem(fd, &late, &value));
	printf("take %d\n", bpf_map_lookup_and_delete_elem(fd, &key, &value));
	printf("taken %llu\n", value);
	printf("gone %d\n", bpf_map_lookup_elem(fd, &key, &value));
	printf("flags %d\n", bpf_map_update_elem(fd, &key, &value, 9));
	/* Of CPUs. */
	fd = map("by_cpu");
	for (int i = 0; i < 256; i++)
		values[i] = 3;
	printf("values %d\n", bpf_map_update_elem(fd, &key, values, BPF_ANY));
	printf("values exist %d\n", bpf_map_update_elem(fd, &key, values, BPF_EXIST));
	printf("values noexist %d\n", bpf_map_update_elem(fd, &key, values, BPF_NOEXIST));
	printf("values beyond %d\n", bpf_map_update_elem(fd, &other, values, BPF_ANY));
	printf("values flags %d\n", bpf_map_update_elem(fd, &key, values, 9));
}

/* As loaders ask for links to several places: the error says that the kernel has them. */
static void link_to_folder(struct bpf_program *program)
{
	unsigned long offset = 0;
	LIBBPF_OPTS(bpf_link_create_opts, options, .uprobe_multi.path = "/",
		    .uprobe_multi.offsets = &offset, .uprobe_multi.cnt = 1);

	printf("folder %d\n",
	       bpf_link_create(bpf_program__fd(program), -1, UPROBE_MULTI, &options));
}

int main(int argc, char **argv)
{
	int pid = atoi(argv[2]), cpus = libbpf_num_possible_cpus();
	unsigned long semaphore = getenv("SEMAPHORE") ? strtoul(getenv("SEMAPHORE"), NULL, 0) : 0;
	LIBBPF_OPTS(bpf_uprobe_opts, at_entry, .bpf_cookie = 3, .ref_ctr_offset = semaphore);
	LIBBPF_OPTS(bpf_uprobe_opts, at_return, .retprobe = true, .ref_ctr_offset = semaphore);
	unsigned long offset = strtoul(argv[4], NULL, 0);
	const char *extra = argc > 5 ? argv[5] : NULL;
	struct bpf_program *program;
	struct perf_buffer *perf;
	struct ring_buffer *ring;
	struct bpf_link *links[3] = { 0 };
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	object = bpf_object__open_file(argv[1], NULL);
	if (extra)
		bpf_program__set_autoload(bpf_object__find_program_by_name(object, extra), true);
	for (struct bpf_map *one = bpf_object__next_map(object, NULL); one;
	     one = bpf_object__next_map(object, one))
		if (strstr(bpf_map__name(one), ".rodata"))
			/* `options`, as skeletons write them. */
			memcpy(bpf_map__initial_value(one, &(size_t){ 0 }),
			       &(__u64[2]){ WEIGHTS, 10 }, 16);
	if (bpf_object__load(object))
		return 1;
	for (__u32 key = 0; key < WEIGHTS; key++)
		bpf_map_update_elem(map("weights"), &key, &(__u64){ key * key }, BPF_ANY);
	perf = perf_buffer__new(map("perf"), 64, on_sample, on_lost, "perf", NULL);
	ring = ring_buffer__new(map("ring"), on_record, "ring", NULL);
	program = bpf_object__find_program_by_name(object, "on_entry");
	links[0] = bpf_program__attach_uprobe_opts(program, pid, argv[3], offset, &at_entry);
	program = bpf_object__find_program_by_name(object, "on_return");
	links[1] = bpf_program__attach_uprobe_opts(program, pid, argv[3], offset, &at_return);
	if (extra && !strcmp(extra, "on_several")) {
		__u64 cookie = 11;
		LIBBPF_OPTS(bpf_uprobe_multi_opts, several, .cnt = 1, .offsets = &offset,
			    .cookies = &cookie);

		program = bpf_object__find_program_by_name(object, extra);
		links[2] = bpf_program__attach_uprobe_multi(program, pid, argv[3], NULL, &several);
	} else if (extra) {
		program = bpf_object__find_program_by_name(object, extra);
		links[2] = strcmp(extra, "in_kernel") ?
				   bpf_program__attach_uprobe_opts(program, pid, argv[3], offset,
								   &at_entry) :
				   bpf_program__attach(program);
	}
	printf("attached");
	for (int i = 0; i < (extra ? 3 : 2); i++)
		printf(" %d", links[i] ? 0 : errno);
	printf("\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "detach\n")) {
			bpf_link__destroy(links[0]);
			links[0] = NULL;
			printf("detached\n");
		}
		/* Until there are so many. */
		if (!strncmp(line, "poll ", 5)) {
			while (samples < atoi(line + 5))
				perf_buffer__poll(perf, POLL_MS);
			while (records < atoi(line + 5))
				ring_buffer__poll(ring, POLL_MS);
			printf("polled\n");
		}
		if (!strcmp(line, "dump\n")) {
			if (extra && !strcmp(extra, "on_several"))
				link_to_folder(program);
			dump("by_rest", 0);
			dump("recent", 0);
			dump("by_rest_and_cpu", cpus);
			dump("by_cpu", cpus);
			dump("sums", 0);
			dump_stacks();
			dump_batch();
			try_commands();
			dump("by_rest", 0);
			dump("by_cpu", cpus);
			printf("end\n");
		}
	}
	for (int i = 0; i < 3; i++)
		bpf_link__destroy(links[i]);
	printf("over\n");
	return 0;
}
