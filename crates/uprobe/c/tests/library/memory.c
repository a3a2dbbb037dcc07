/* Opens and closes an object again and again, and attaches: memory OBJECT PID. Fails if memory or files are left behind. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <unistd.h>

#define OPENED	       1000
#define ATTACHED       100
/* Until the allocator has what it needs. */
#define WARMED	       100
#define MAX_GROWTH_KIB 1024

static long resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size, resident;

	TRUE(file);
	EQUAL(fscanf(file, "%ld %ld", &size, &resident), 2);
	fclose(file);
	return resident * sysconf(_SC_PAGESIZE) / 1024;
}

static int files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	TRUE(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void use(const char *path, pid_t pid, int is_attached)
{
	struct bpfcost_uprobe_place place = { .program = "on_call", .name = "handle" };
	struct bpfcost_uprobe *probes;
	uint64_t attachment;

	EQUAL(bpfcost_uprobe_open(path, NULL, &probes), 0);
	if (is_attached)
		EQUAL(bpfcost_uprobe_attach(probes, pid, &place, 1, &attachment), 0);
	/* Errors are kept in memory too. */
	TRUE(bpfcost_uprobe_map_info(probes, "nothing", NULL));
	EQUAL(bpfcost_uprobe_close(probes), 0);
}

int main(int count, char **arguments)
{
	long before = 0, grown;
	int open_before = 0;
	pid_t pid;

	EQUAL(count, 3);
	pid = atoi(arguments[2]);
	for (int i = 0; i < OPENED; i++) {
		if (i == WARMED) {
			before = resident_kib();
			open_before = files();
		}
		/* Each takes memory of the process, so that there are not as many. */
		use(arguments[1], pid, i % (OPENED / ATTACHED) == 0);
	}
	grown = resident_kib() - before;
	printf("%ld KiB more of %ld\n", grown, before);
	EQUAL(files(), open_before);
	TRUE(grown < MAX_GROWTH_KIB);
	return 0;
}
