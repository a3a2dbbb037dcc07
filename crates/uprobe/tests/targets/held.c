/* A process that stops itself in a function, before it returns.
 *
 * Prints "ready" with the address where it stops: 4 bytes later is the RET. At each line on stdin, it calls the
 * function, and prints "ready" again when that has returned.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

long held(long pid, long signal);
extern const char held_here[];

/* No instruction of the compiler is between the system call and the RET, whose jump takes 5 bytes. */
asm(".globl held\n"
    ".type held, @function\n"
    "held:\n"
    ".cfi_startproc\n"
    "	mov $62, %eax\n"
    "	syscall\n"
    "held_here:\n"
    "	nop\n"
    "	nop\n"
    "	nop\n"
    "	nop\n"
    "	ret\n"
    ".cfi_endproc\n"
    ".size held, . - held\n");

_Static_assert(SYS_kill == 62, "the number of kill");

int main(void)
{
	char line[16];

	do {
		printf("ready %p\n", (void *)held_here);
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin) && held(getpid(), SIGSTOP) == 0);
	return 0;
}
