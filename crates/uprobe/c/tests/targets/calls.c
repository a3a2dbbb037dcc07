/* Threads that call functions: calls THREADS CALLS. Prints "ready"; for each line "go" it calls, and prints "CALLS WRONG",
 * all of `handle` so far. Each thread calls `sited`, which has a USDT probe test:sited, a tenth as often.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "site.h"

static _Atomic unsigned long calls, wrong;
static unsigned long each;

unsigned long sited(unsigned long a);

asm(SITE_MACRO ".text\n"
	       ".globl sited\n"
	       ".type sited, @function\n"
	       "sited:\n"
	       ".cfi_startproc\n"
	       "	mov %rdi, %rax\n"
	       "	add $0x1111111, %rax\n"
	       "	site sited, 0, \"8@%rdi\"\n"
	       "	add $0x2222222, %rax\n"
	       "	ret\n"
	       ".cfi_endproc\n"
	       ".size sited, . - sited\n");

__attribute__((noinline, noclone, used)) unsigned long handle(unsigned long a, unsigned long b)
{
	unsigned long sum = 7;

	for (unsigned long i = 0; i < (a & 7); i++)
		sum = sum * 31 + b;
	return sum;
}

static void *work(void *argument)
{
	for (unsigned long i = 0; i < each; i++) {
		unsigned long expected = 7;

		for (unsigned long at = 0; at < (i & 7); at++)
			expected = expected * 31 + 5;
		if (handle(i, 5) != expected)
			wrong++;
		if (i % 10 == 0 && sited(i) != i + 0x3333333)
			wrong++;
		calls++;
	}
	return argument;
}

int main(int count, char **arguments)
{
	int threads = count > 2 ? atoi(arguments[1]) : 1;
	pthread_t all[threads];
	char line[16];

	each = strtoul(arguments[count - 1], NULL, 10);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && line[0] == 'g') {
		for (int i = 0; i < threads; i++)
			pthread_create(&all[i], NULL, work, NULL);
		for (int i = 0; i < threads; i++)
			pthread_join(all[i], NULL);
		printf("%lu %lu\n", calls, wrong);
		fflush(stdout);
	}
	return 0;
}
