/* Calls a function and prints how long a call took: for each line on stdin, the fewest nanoseconds a call of 20 rounds.
 */
#include <stdio.h>
#include <time.h>

#define ROUNDS 20
#define CALLS  20000

#ifdef NOP5
/* Begins with a nop of 5 bytes, which compilers do not write. */
long work(long a);
asm(".pushsection .text\n"
    ".p2align 4\n"
    ".globl work\n"
    ".type work, @function\n"
    "work:\n"
    ".cfi_startproc\n"
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
    "mov %rdi, -8(%rsp)\n"
    "mov -8(%rsp), %rax\n"
    "inc %rax\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size work, . - work\n"
    ".popsection\n");
#else
__attribute__((noinline, noclone, used)) long work(long a)
{
	volatile long local = a;

	return local + 1;
}
#endif

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void)
{
	char line[16];

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		double best = 1e18;

		for (int round = 0; round < ROUNDS; round++) {
			double start = now();

			for (long i = 0; i < CALLS; i++)
				if (work(i) != i + 1)
					return 1;
			double each = (now() - start) / CALLS;

			best = each < best ? each : best;
		}
		printf("%.3f\n", best);
		fflush(stdout);
	}
	return 0;
}
