/* USDT sites whose arguments are wherever compilers leave them.
 *
 * arguments CALLS [f]: at each line on stdin, calls `described` CALLS times. Then prints "CALLS WRONG". Prints "ready"
 * first. With f, process_vm_readv fails in the calls.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "filter.h"
#include "site.h"

unsigned long described(unsigned long a, const unsigned long *table);

asm(SITE_MACRO
".globl described\n"
".type described, @function\n"
"described:\n"
".cfi_startproc\n"
"	push %rbx\n"
"	push %rbp\n"
"	mov %rsp, %rax\n"
/* In the middle of a page. */
"	and $-4096, %rsp\n"
"	sub $2048, %rsp\n"
"	mov %rax, 24(%rsp)\n"
"	lea 16(%rsp), %rbp\n"
"	mov %rdi, (%rsp)\n"
"	mov %rdi, %rbx\n"
"	not %rbx\n"
"	mov %rbx, 8(%rsp)\n"
"	mov %rsi, %r8\n"
"	mov $3, %r9d\n"
"	site registers, 0, \"8@%rdi -8@%rbx 4@%edi -4@%edi 2@%di -2@%bx 1@%dil -1@%bl 4@%r9d 2@%r9w 1@%r9b 8@%r8\"\n"
"	lea (%rdi,%rbx), %rax\n"
"	lea (%rax,%r9), %rax\n"
"	site memory, 0, \"8@(%rsp) -8@8(%rsp) 4@8(%rsp) -4@(%rsp) -2@2(%rsp) 1@-16(%rbp) -1@-8(%rbp) 8@(%rsi) 2@-8(%r8)\"\n"
"	lea (%rdi,%rax), %rax\n"
"	lea (%rbx,%rax), %rax\n"
"	site indexed, 0, \"8@(%rsi,%r9,8) -4@-4(%rsi,%r9,4) 1@(%rsi,%r9) -2@8(%rsi,%r9,2) 8@-3(%rsp,%r9,1)\"\n"
"	lea (%rdi,%rax), %rax\n"
"	lea (%rbx,%rax), %rax\n"
"	site constants, 0, \"8@$5 -4@$-9 4@$-9 1@$300 -1@$255 8@$-1 -8@$9223372036854775807\"\n"
"	lea (%rdi,%rax), %rax\n"
"	lea (%rbx,%rax), %rax\n"
"	site none, 0, \"\"\n"
"	lea (%rdi,%rax), %rax\n"
"	lea (%rbx,%rax), %rax\n"
"	site nowhere, 0, \"8@(%rdi) 8@%rdi\"\n"
"	lea 6(%rax), %rax\n"
"	mov 24(%rsp), %rsp\n"
"	pop %rbp\n"
"	pop %rbx\n"
"	ret\n"
".cfi_endproc\n"
".size described, . - described\n");

/* Not on the stack, whose address differs between processes. */
static unsigned long table[16];

int main(int argc, char **argv)
{
	unsigned long calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000, wrong = 0;
	char line[16];

	for (int i = 0; i < 16; i++)
		table[i] = (i + 1) * 0x9e3779b97f4a7c15UL;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (argc > 2)
			filter(SYS_process_vm_readv, SECCOMP_RET_ERRNO | EPERM);
		/* ~a + a is -1. Addresses that no process has, and signs of every size. */
		for (unsigned long i = 0; i < calls; i++)
			if (described(0x8000000000000000UL | i * 0x1234567UL, table + 1) != 4)
				wrong++;
		printf("%lu %lu\n", calls, wrong);
		fflush(stdout);
	}
	return 0;
}
