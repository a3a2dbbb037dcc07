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

static void *run(void *first)
{
	unsigned long wrong = 0;

	for (unsigned long a = (unsigned long)first; a < calls; a += THREADS) {
		wrong += work(a) != a + 1;
		if (test_called_semaphore)
			asm volatile("site called, test_called_semaphore, \"\"\n\tnopl 0x100(%rax)");
	}
	return (void *)wrong;
}

int main(void)
{
	char line[32];

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
