/* A process that executes its program anew all the time, each time at other addresses, until its input ends. Prints "ready"
   first: it has an argument then, and none later. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };

	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		argv[1] = NULL;
	}
	for (unsigned long call = 0; call < 100000; call++)
		work(call);
	if (poll(&input, 1, 0))
		return 0;
	execv("/proc/self/exe", argv);
	return 1;
}
