/* A server that forks a child for each connection. At "serve N", N of them come one after another, and each calls `work`
   twice. At "hold", one comes that waits; its number as a process is the reply. At "go N", the Nth of those calls `work`
   twice, and waits again. Children end with their parent. An argument is the number of a system call for which a seccomp
   filter kills them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "filter.h"

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

static int orders[8][2], replies[2], held;

static void serve(int connections)
{
	int status;

	for (; connections > 0; connections--) {
		pid_t child = fork();

		if (!child) {
			work(1);
			work(2);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			exit(1);
	}
	printf("served\n");
}

static void hold(void)
{
	char order;
	pid_t child;

	if (pipe(orders[held]))
		exit(1);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(orders[held][0], &order, 1) == 1) {
			work(1);
			work(2);
			if (write(replies[1], "d", 1) != 1)
				break;
		}
		_exit(0);
	}
	held++;
	printf("%d\n", child);
}

int main(int argc, char **argv)
{
	char line[64], reply;

	if (pipe(replies))
		return 1;
	if (argc > 1)
		filter(atoi(argv[1]), SECCOMP_RET_KILL_PROCESS);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "serve", 5)) {
			serve(atoi(line + 5));
		} else if (!strncmp(line, "hold", 4)) {
			hold();
		} else if (!strncmp(line, "go", 2)) {
			if (write(orders[atoi(line + 2)][1], "g", 1) != 1)
				return 1;
			printf("going\n");
		} else {
			if (read(replies[0], &reply, 1) != 1)
				return 1;
			printf("worked\n");
		}
		fflush(stdout);
	}
	return 0;
}
