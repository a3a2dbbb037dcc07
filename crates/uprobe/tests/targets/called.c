/* Calls work() as often as each line of its input says, from four threads together, with the numbers from 0 on.
 *
 * A USDT site follows each call, if it is armed. Prints "ready ADDRESS", and "done WRONG" after each line.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "site.h"

#define THREADS 4

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a)
{
	/* Room for probes at both ends. */
	asm volatile("nopl 0x100(%rax)\n\tnopl 0x100(%rax)");
	return a + 1;
}

asm(SITE_MACRO);

/* What sys/sdt.h would define for a probe with a semaphore. */
__attribute__((section(".probes"), used)) volatile unsigned short test_called_semaphore;
static unsigned long calls;
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;

static __attribute__((noinline, noclone)) unsigned long call(unsigned long a)
{
	unsigned long wrong = work(a) != a + 1;

	if (test_called_semaphore)
		asm volatile("site called, test_called_semaphore, \"\"\n\tnopl 0x100(%rax)");
	return wrong;
}

/* So that the two innermost callers of work() are always the same. */
static __attribute__((noinline, noclone)) unsigned long step(unsigned long a)
{
	unsigned long wrong = call(a);

	/* Not a tail call. */
	asm volatile("" : "+r"(wrong));
	return wrong;
}

/* The first calls one after the other: a probe may miss a new thread's first call while another's is under way. */
static void *run(void *number)
{
	unsigned long a = (unsigned long)number, wrong = 0;

	pthread_mutex_lock(&first);
	if (a < calls)
		wrong += step(a);
	pthread_mutex_unlock(&first);
	pthread_barrier_wait(&all);
	for (a += THREADS; a < calls; a += THREADS)
		wrong += step(a);
	return (void *)wrong;
}

int main(void)
{
	char line[32];

	pthread_barrier_init(&all, NULL, THREADS);
	printf("ready %p\n", (void *)work);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		pthread_t threads[THREADS];
		unsigned long wrong = 0;

		calls = strtoul(line, NULL, 10);
		for (unsigned long i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, run, (void *)i);
		for (int i = 0; i < THREADS; i++) {
			void *one;

			pthread_join(threads[i], &one);
			wrong += (unsigned long)one;
		}
		printf("done %lu\n", wrong);
		fflush(stdout);
	}
	return 0;
}
