/* Calls a function without end and checks what it returns. SIGUSR1 has a handler, on an alternate stack if there is an
 * argument: it prints the address that it has interrupted, and waits for a line on stdin. After "stop" it ends, and prints
 * "CALLS WRONG".
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int stop;

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a, unsigned long b)
{
	volatile unsigned long local[2] = { a, b };

	return local[0] * 31 + local[1];
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	char line[64] = "";
	int length =
		snprintf(line, sizeof(line), "%llx\n", interrupted->uc_mcontext.gregs[REG_RIP]);

	(void)signal;
	(void)info;
	if (write(1, line, length) != length)
		_exit(1);
	length = read(0, line, sizeof(line) - 1);
	if (length <= 0)
		_exit(1);
	stop = !strncmp(line, "stop", 4);
}

int main(int argc, char **argv)
{
	static char stack[1 << 16];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	unsigned long calls = 0, wrong = 0;

	(void)argv;
	if (argc > 1) {
		sigaltstack(&alternate, NULL);
		action.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGUSR1, &action, NULL);
	printf("ready\n");
	fflush(stdout);
	while (!stop) {
		wrong += work(calls, 7) != calls * 31 + 7;
		calls++;
	}
	printf("%lu %lu\n", calls, wrong);
	return 0;
}
