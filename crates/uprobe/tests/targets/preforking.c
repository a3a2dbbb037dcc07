/* A server whose workers come and go. Each worker ends after some turns, and another is forked.
 *
 * At "hold 1", workers stay, at "hold 0" no more. At "serve N", they call work() N times together; at "children N", the parent forks N children, some at a time, that call it three
 * times each and end. Prints "ready", and after each line the number of calls, and of those that returned something wrong.
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS	 3
#define TURNS	 40
#define CHILDREN 4
#define CALLS	 3

static struct {
	_Atomic long left, calls, wrong;
	/* The number of the last order to stay, 0 if there is none, and the workers that know it. */
	_Atomic long held, staying;
} *all;

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a)
{
	/* Room for probes at both ends. */
	asm volatile("nopl 0x100(%rax)\n\tnopl 0x100(%rax)");
	return a + 1;
}

static void call(unsigned long a)
{
	all->wrong += work(a) != a + 1;
	all->calls++;
}

static void serve(void)
{
	long known = 0;

	for (int turn = 0; turn < TURNS || all->held; turn++) {
		long left = all->left, held = all->held;

		if (held && held != known) {
			known = held;
			all->staying++;
		}

		if (left > 0 && atomic_compare_exchange_strong(&all->left, &left, left - 1))
			call(left);
		else
			usleep(500);
	}
}

static void make_calls(void)
{
	for (int i = 0; i < CALLS; i++)
		call(i);
}

static void start(void (*run)(void))
{
	pid_t child = fork();

	if (child < 0) {
		perror("fork");
		exit(1);
	}
	if (child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	_exit(0);
}

/* Returns how many children have ended. One that ends by a signal counts as a wrong call. */
static int ended(int flags)
{
	int status, number = 0;

	while (waitpid(-1, &status, flags) > 0) {
		all->wrong += status != 0;
		number++;
		if (!flags)
			break;
	}
	return number;
}

static void replace_workers(void)
{
	for (int number = ended(WNOHANG); number > 0; number--)
		start(serve);
}

static void make_children(long number)
{
	/* The workers have to end first: who ends is a child from then on. */
	for (int i = 0; i < WORKERS; i++)
		ended(0);
	for (long i = 0; i < number; i++) {
		if (i >= CHILDREN)
			ended(0);
		start(make_calls);
	}
	while (ended(0))
		;
	for (int i = 0; i < WORKERS; i++)
		start(serve);
}

/* Has workers stay, or go on. */
static void hold(int stay)
{
	static long orders;

	all->staying = 0;
	all->held = stay ? ++orders : 0;
	while (stay && all->staying < WORKERS) {
		replace_workers();
		usleep(200);
	}
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	char line[64];
	long number;

	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready\n");
	fflush(stdout);
	for (int i = 0; i < WORKERS; i++)
		start(serve);
	for (;;) {
		replace_workers();
		if (!poll(&input, 1, 1))
			continue;
		if (!fgets(line, sizeof(line), stdin))
			return 0;
		all->calls = 0;
		if (sscanf(line, "serve %ld", &number) == 1) {
			for (all->left = number; all->calls < number; usleep(200))
				replace_workers();
		} else if (sscanf(line, "hold %ld", &number) == 1) {
			hold(number);
		} else if (sscanf(line, "children %ld", &number) == 1) {
			make_children(number);
		}
		printf("%ld %ld\n", all->calls, all->wrong);
		fflush(stdout);
	}
}
