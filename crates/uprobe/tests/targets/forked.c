/* At "fork", makes a child and a child of that; at "call", each of the three calls `work` once.
   Children end with their parent. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

/* The orders of each child, and what all reply. */
static int orders[2][2], replies[2];

static void child(int number)
{
	char order;

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (number == 0)
		child(1);
	if (write(replies[1], "d", 1) != 1)
		_exit(1);
	while (read(orders[number][0], &order, 1) == 1) {
		work(order);
		if (write(replies[1], "d", 1) != 1)
			_exit(1);
	}
	_exit(0);
}

static void hear(void)
{
	char reply[2];

	for (int left = 2; left > 0; left -= read(replies[0], reply, left))
		;
}

int main(void)
{
	char line[64];

	if (pipe(orders[0]) || pipe(orders[1]) || pipe(replies))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (line[0] == 'f') {
			child(0);
			hear();
			printf("forked\n");
		} else {
			work(0);
			if (write(orders[0][1], "c", 1) != 1 || write(orders[1][1], "c", 1) != 1)
				return 1;
			hear();
			printf("called\n");
		}
		fflush(stdout);
	}
	return 0;
}
