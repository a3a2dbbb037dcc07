/* Calls a function without end and checks what it returns. SIGUSR1 has a handler: it prints the address that it has
 * interrupted, and waits for a line on stdin; with the argument "alternate" on an alternate stack, and with "leaves" on
 * yet another one, as a thread of a program's own making would. With that, the address is 0 if it is not of a program's
 * frame. After "stop" it ends, and prints "CALLS WRONG".
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK (1 << 16)

static volatile int stop;
static int leaves;
static ucontext_t handler, elsewhere;
static void *other_stack;
/* An address on main's stack, above all that it calls. */
static long long main_stack;

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a, unsigned long b)
{
	volatile unsigned long local[2] = { a, b };

	return local[0] * 31 + local[1];
}

static void listen(void)
{
	char line[64] = "";

	if (read(0, line, sizeof(line) - 1) <= 0)
		_exit(1);
	stop = !strncmp(line, "stop", 4);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	char line[64] = "";
	long long *registers = interrupted->uc_mcontext.gregs;
	/* Around a program's frame a thread is on its own stack, and who leaves from there is not seen. */
	int is_seen = !leaves || (unsigned long)(main_stack - registers[REG_RSP]) > STACK;
	int length = snprintf(line, sizeof(line), "%llx\n", is_seen ? registers[REG_RIP] : 0);

	(void)signal;
	(void)info;
	if (write(1, line, length) != length)
		_exit(1);
	if (!leaves) {
		listen();
		return;
	}
	getcontext(&elsewhere);
	elsewhere.uc_stack.ss_sp = other_stack;
	elsewhere.uc_stack.ss_size = STACK;
	elsewhere.uc_link = &handler;
	makecontext(&elsewhere, listen, 0);
	swapcontext(&handler, &elsewhere);
}

int main(int argc, char **argv)
{
	static char stack[STACK];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	unsigned long calls = 0, wrong = 0;

	main_stack = (long long)__builtin_frame_address(0);
	leaves = argc > 1 && !strcmp(argv[1], "leaves");
	if (argc > 1) {
		sigaltstack(&alternate, NULL);
		action.sa_flags |= SA_ONSTACK;
	}
	/* In a mapping of its own, which ends with it: nothing of the interrupted code is near. */
	other_stack = mmap(NULL, 2 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (other_stack == MAP_FAILED || mprotect(other_stack, STACK, PROT_READ | PROT_WRITE))
		return 1;
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
