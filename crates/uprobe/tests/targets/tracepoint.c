/* Opens the tracepoint of a number as a perf event. Prints the error, 0 without one. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attributes),
		.config = count > 1 ? strtoul(arguments[1], NULL, 10) : 0,
		.disabled = 1,
	};
	long event = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);

	printf("%d\n", event < 0 ? errno : 0);
	return 0;
}
