/* Threads that call a function with USDT sites: steps THREADS CALLS.
 *
 * Prints "ready", and at each line on stdin has each thread call it CALLS times, with arguments that are the same in each
 * round. Then prints "CALLS WRONG": all calls of the round, and the wrong results.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "site.h"

#define THREADS 64

static _Atomic unsigned long wrong;
static unsigned long calls;

unsigned long step(unsigned long a, long b);

/* The first site is the function's first instruction. */
asm(SITE_MACRO ".globl step\n"
	       ".type step, @function\n"
	       "step:\n"
	       ".cfi_startproc\n"
	       "	site begun, 0, \"8@%rdi -4@%esi\"\n"
	       "	lea 3(%rdi,%rsi,2), %rax\n"
	       "	mov %rax, %rcx\n"
	       "	site inner, 0, \"8@%rax -4@%esi 8@$77 2@%cx\"\n"
	       "	lea 5(%rax,%rcx,4), %rax\n"
	       "	imul $7, %rax, %rax\n"
	       "	add $1, %rax\n"
	       "	lea 9(%rax), %rax\n"
	       "	ret\n"
	       ".cfi_endproc\n"
	       ".size step, . - step\n");

static void *work(void *argument)
{
	for (unsigned long i = 0; i < calls; i++) {
		unsigned long a = i * 0x9e3779b97f4a7c15UL, rax = a - 2 * i + 3;

		if (step(a, -(long)i) != (5 * rax + 5) * 7 + 10)
			wrong++;
	}
	return argument;
}

int main(int count, char **arguments)
{
	int threads = count > 1 ? atoi(arguments[1]) : 1;
	pthread_t all[THREADS];
	char line[16];

	calls = count > 2 ? strtoul(arguments[2], NULL, 10) : 1000;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < threads; i++)
			if (pthread_create(&all[i], NULL, work, NULL))
				abort();
		for (int i = 0; i < threads; i++)
			pthread_join(all[i], NULL);
		printf("%lu %lu\n", calls * threads, wrong);
		fflush(stdout);
	}
	return 0;
}
