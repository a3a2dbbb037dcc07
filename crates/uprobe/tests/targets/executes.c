/* A process that executes its program anew all the time, each time at other addresses, until its input ends. */
#include <poll.h>
#include <unistd.h>

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };

	(void)argc;
	for (unsigned long call = 0; call < 100000; call++)
		work(call);
	if (poll(&input, 1, 0))
		return 0;
	execv("/proc/self/exe", argv);
	return 1;
}
