/* Functions written by hand: a short jump of one leads into the first bytes of the next, and one that says nothing about how
 * to unwind it. Prints "ready"; for each line on stdin, calls them and prints what they return.
 */
#include <stdio.h>

long before(long a);
long entered(long a);
long silent(long a);
long spoken(long a);

asm(".pushsection .text\n"
    ".globl before\n"
    ".type before, @function\n"
    "before:\n"
    ".cfi_startproc\n"
    "	test %rdi, %rdi\n"
    "	jne behind_first\n"
    "	xor %eax, %eax\n"
    "	ret\n"
    ".cfi_endproc\n"
    ".size before, . - before\n"
    ".globl entered\n"
    ".type entered, @function\n"
    "entered:\n"
    ".cfi_startproc\n"
    "	mov %edi, %edi\n"
    "behind_first:\n"
    "	lea 1(%rdi), %rax\n"
    "	ret\n"
    "	nop\n"
    ".cfi_endproc\n"
    ".size entered, . - entered\n"
    ".globl silent\n"
    ".type silent, @function\n"
    "silent:\n"
    "	lea 2(%rdi), %rax\n"
    "	ret\n"
    "	nop\n"
    ".size silent, . - silent\n"
    ".popsection\n");

__attribute__((noipa)) long spoken(long a)
{
	return a * 3 + 7;
}

int main(void)
{
	char line[16];

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%ld %ld %ld %ld\n", before(1), entered(1), silent(1), spoken(1));
		fflush(stdout);
	}
	return 0;
}
