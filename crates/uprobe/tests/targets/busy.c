/* Threads that call functions without end and check what they return.
 *
 * busy THREADS MODE CALLS: each thread ends after CALLS calls, never if there are none. MODE is any of the letters
 *   c  threads end after some thousand calls, and others take their place
 *   t  a 2 kHz timer, whose handler calls the functions too
 *   f  each thread also forks now and then; the child calls the functions too, uncounted
 *   p  a seccomp filter kills it for memory of its own that it maps later
 *   q  one kills it for asking who its user is
 *   r  the same, for its threads alone and not the first
 *   g  sets the GS base first
 *   s  the alternate signal stack takes the handlers
 *   b  each thread also blocks in nanosleep, poll and futex now and then
 *   w  waits for a line on stdin before the first call
 *   x  executes itself in place of the end
 * Prints "ready" with the addresses of counts, handled and seen, then waits for a line (or the end) of stdin, ends the threads, and prints "CALLS WRONG".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include "filter.h"
#include <unistd.h>

#define MAX 256
#define NOINLINE __attribute__((noinline, noclone, used))

/* The calls of each thread so far, those of signal handlers apart; read by the tests, too. */
struct line {
	_Atomic unsigned long calls;
	char pad[56];
};
struct line counts[MAX], handled[MAX];
/* For programs of the tests. */
unsigned long seen[8];
static _Atomic unsigned long wrong;
static _Atomic int stop;
static int churn, blocks, timed, forks, altstack, filtered;
static unsigned long limit = -1UL;
static __thread int self;

NOINLINE unsigned long work(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e,
			    unsigned long f)
{
	volatile unsigned long local[4] = { a, b, c, d };
	for (int i = 0; i < 4; i++)
		e += local[i];
	return e * 31 + f;
}

/* With a vector argument, and none in integer registers. */
NOINLINE double scaled(double a, double b)
{
	volatile double product = a * b;

	return product + 1.5;
}

static void call(struct line *line, unsigned long i)
{
	unsigned long expected = (i + 1 + i * 2 + 3 + 4 + i) * 31 + 6;

	if (work(i, 1, i * 2, 3, i + 4, 6) != expected)
		wrong++;
	/* A new thread's handler counts for thread 0, until the thread knows its number. */
	atomic_fetch_add_explicit(&line->calls, 1, memory_order_relaxed);
	if (scaled(i, 2) != i * 2.0 + 1.5)
		wrong++;
}

static void on_timer(int signal)
{
	(void)signal;
	call(&handled[self], 77);
}

static void *caller(void *argument)
{
	self = (int)(long)argument;
	if (altstack) {
		stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };

		sigaltstack(&stack, NULL);
	}
	for (unsigned long i = 0; !stop && counts[self].calls < limit; i++) {
		call(&counts[self], i);
		if (churn && i == 3000)
			break;
		if (forks && i % 5000 == 0) {
			pid_t child = fork();
			int status = -1;

			if (child == 0) {
				unsigned long before = wrong;

				for (unsigned long j = 0; j < 100; j++)
					call(&counts[self], j);
				_exit(wrong != before);
			}
			while (waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			if (status)
				wrong++;
		}
		if (blocks && i % 1000 == 0) {
			struct timespec nap = { 0, 2000000 }, left = { 0, 0 };
			int unused = 0;

			while (nanosleep(&nap, &left))
				nap = left;
			/* Not even SA_RESTART has poll go on after a handler. */
			if (poll(NULL, 0, 2) != 0 && !timed)
				wrong++;
			syscall(SYS_futex, &unused, 0 /* FUTEX_WAIT */, 0, &(struct timespec){ 0, 2000000 });
		}
	}
	return NULL;
}

static void *start(void *argument)
{
	pthread_t thread;

	if (filtered)
		filter(SYS_getuid, SECCOMP_RET_KILL_PROCESS);
	if (!churn)
		return caller(argument);
	while (!stop && counts[(long)argument].calls < limit) {
		if (pthread_create(&thread, NULL, caller, argument))
			abort();
		pthread_join(thread, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	const char *mode = argc > 2 ? argv[2] : "";
	pthread_t thread[MAX];
	unsigned long calls = 0;
	char line[16];

	if (argc > 3)
		limit = strtoul(argv[3], NULL, 10);
	churn = !!strchr(mode, 'c');
	blocks = !!strchr(mode, 'b');
	forks = !!strchr(mode, 'f');
	altstack = !!strchr(mode, 's');
	if (strchr(mode, 'p'))
		filter(SYS_memfd_create, SECCOMP_RET_KILL_PROCESS);
	filtered = !!strchr(mode, 'r');
	if (strchr(mode, 'q'))
		filter(SYS_getuid, SECCOMP_RET_KILL_PROCESS);
	if (strchr(mode, 'g'))
		syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, seen);
	timed = !!strchr(mode, 't');
	self = MAX - 1;
	if (strchr(mode, 'w')) {
		printf("ready %p %p %p\n", (void *)counts, (void *)handled, (void *)seen);
		fflush(stdout);
		fgets(line, sizeof(line), stdin);
	}
	if (timed) {
		struct sigaction action = { .sa_handler = on_timer, .sa_flags = SA_RESTART | (altstack ? SA_ONSTACK : 0) };
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
		struct itimerspec every = { { 0, 500000 }, { 0, 500000 } };
		timer_t timer;

		sigaction(SIGALRM, &action, NULL);
		if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL))
			abort();
	}
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, start, (void *)i))
			abort();
	if (timed) {
		/* The others are to get the signals. */
		sigset_t all;

		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	}
	printf("ready %p %p %p\n", (void *)counts, (void *)handled, (void *)seen);
	fflush(stdout);
	fgets(line, sizeof(line), stdin);
	stop = limit == -1UL;
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < MAX; i++)
		calls += counts[i].calls + handled[i].calls;
	printf("%lu %lu\n", calls, wrong);
	fflush(stdout);
	fgets(line, sizeof(line), stdin);
	if (strchr(mode, 'x'))
		execl("/proc/self/exe", argv[0], "0", NULL);
	return 0;
}
