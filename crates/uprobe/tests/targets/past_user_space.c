/* Makes calls for uprobes that can't run in user space: an event of a control group's processes, and a link of a session.
 * Prints their errors, 0 without one.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_OF_ALL "/bin/true"
/* `BPF_TRACE_UPROBE_SESSION`, of Linux 6.13. */
#define SESSION	    57

/* The attributes of a link, as the kernel has them. */
struct link {
	__u32 program, target, attach_type, flags;
	__u64 path, offsets, reference_offsets, cookies;
	__u32 count, places_flags, process;
};

static void show(long result)
{
	printf("%d\n", result < 0 ? errno : 0);
}

int main(void)
{
	__u64 offset = 0;
	struct perf_event_attr event = {
		.size = sizeof(event),
		.config1 = (__u64)FILE_OF_ALL,
		.disabled = 1,
	};
	struct link link = {
		.program = -1,
		.attach_type = SESSION,
		.path = (__u64)FILE_OF_ALL,
		.offsets = (__u64)&offset,
		.count = 1,
	};
	/* Refused before it is looked at. */
	int group = open("/", O_RDONLY);
	FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");

	if (group < 0 || !type || fscanf(type, "%u", &event.type) != 1)
		return 1;
	show(syscall(SYS_perf_event_open, &event, group, 0, -1, PERF_FLAG_PID_CGROUP));
	show(syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link)));
	return 0;
}
