/* Functions whose flags, registers and red zone are live at every instruction, called by threads.
 *
 * inside THREADS MODE CALLS: at each line on stdin, THREADS threads call each function CALLS times. Then prints
 * "CALLS WRONG": the calls of each function in this round, and the wrong results. MODE is any of the letters
 *   b  threads call in the background as well, until the end, uncounted
 *   t  a 2 kHz timer, whose handler calls the functions too, uncounted
 * Prints "ready" with the address of seen first.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "site.h"

#define THREADS 64
#define INPUTS 16
#define BACKGROUND 4

/* For programs of the tests. */
unsigned long seen[8];
/* What sys/sdt.h would define for a probe with a semaphore. */
__attribute__((section(".probes"), used)) volatile unsigned short test_armed_semaphore;
static _Atomic unsigned long wrong;
static unsigned long calls;
static int background;
static unsigned long expected[INPUTS][3];

unsigned long mixed(unsigned long a, unsigned long b);
unsigned long known(unsigned long a);
unsigned long armed(unsigned long a);

asm(SITE_MACRO
/* A leaf: its data is in the red zone, from its one end to its other; most instructions read flags of earlier ones. */
".globl mixed\n"
".type mixed, @function\n"
"mixed:\n"
".cfi_startproc\n"
"	mov %rdi, -8(%rsp)\n"
"	mov %rsi, -16(%rsp)\n"
"	movq $0, -128(%rsp)\n"
"	mov $5, %ecx\n"
"	mov $0x1234567, %r11d\n"
"	xor %eax, %eax\n"
"1:	add -8(%rsp), %rax\n"
"	nop\n"
"	adc -16(%rsp), %rax\n"
"	nopl 0(%rax,%rax,1)\n"
"	rcl $1, %rax\n"
"	seto %dl\n"
"	movzbl %dl, %edx\n"
"	setc %r8b\n"
"	movzbl %r8b, %r8d\n"
"	add %rdx, %r11\n"
"	cmp %rdi, %rsi\n"
"	site flags, 0, \"8@%rdi -4@-8(%rsp)\"\n"
"	cmovg %r11, %rdx\n"
"	jle 2f\n"
"	inc %r11\n"
"	sbb $0, %rax\n"
"2:	lea -1(%rcx), %rcx\n"
"	xor %r11, %rax\n"
"	mov %rax, -128(%rsp)\n"
"	mov -128(%rsp), %rdx\n"
"	test %rcx, %rcx\n"
"	nop\n"
"	nop\n"
"	jne 1b\n"
"	lea (%rax,%rdx), %rax\n"
"	push %rbx\n"
"	call 3f\n"
"3:	pop %rbx\n"
"	pop %rbx\n"
"	add %r8, %rax\n"
"	add %r9, %rax\n"
"	sub %r9, %rax\n"
"	ret\n"
".cfi_endproc\n"
".size mixed, . - mixed\n"
/* Every register and flag has a value that the program of a test knows. */
".globl known\n"
".type known, @function\n"
"known:\n"
".cfi_startproc\n"
"	push %rbx\n"
"	push %rbp\n"
"	push %r12\n"
"	push %r13\n"
"	push %r14\n"
"	push %r15\n"
"	mov $0x12, %edx\n"
"	mov $0x13, %ecx\n"
"	mov $0x14, %ebx\n"
"	mov $0x15, %esi\n"
"	mov $0x17, %ebp\n"
"	mov $0x18, %r8d\n"
"	mov $0x19, %r9d\n"
"	mov $0x1a, %r10d\n"
"	mov $0x1b, %r11d\n"
"	mov $0x1c, %r12d\n"
"	mov $0x1d, %r13d\n"
"	mov $0x1e, %r14d\n"
"	mov %rsp, %r15\n"
"	mov $0x7f, %al\n"
"	test $1, %dil\n"
"	jz 1f\n"
"	add $1, %al\n"               /* Sets OF, SF and AF. */
"	mov $0x11, %eax\n"
"	jmp 2f\n"
"1:	mov $0, %al\n"
"	cmp $1, %al\n"              /* Sets CF, SF, AF and PF. */
"	mov $0x10, %eax\n"
"2:	nop\n"
"	seto %dil\n"
"	lahf\n"
"	movzbl %dil, %edi\n"
"	shl $16, %rdi\n"
"	or %rdi, %rax\n"
"	xor %rdx, %rax\n"
"	xor %rcx, %rax\n"
"	xor %rbx, %rax\n"
"	xor %rsi, %rax\n"
"	xor %rbp, %rax\n"
"	xor %r8, %rax\n"
"	xor %r9, %rax\n"
"	xor %r10, %rax\n"
"	xor %r11, %rax\n"
"	xor %r12, %rax\n"
"	xor %r13, %rax\n"
"	xor %r14, %rax\n"
"	sub %r15, %rax\n"
"	add %rsp, %rax\n"
"	pop %r15\n"
"	pop %r14\n"
"	pop %r13\n"
"	pop %r12\n"
"	pop %rbp\n"
"	pop %rbx\n"
"	ret\n"
".cfi_endproc\n"
".size known, . - known\n"
/* Two sites of one probe, with a semaphore. */
".globl armed\n"
".type armed, @function\n"
"armed:\n"
".cfi_startproc\n"
"	mov %rdi, -8(%rsp)\n"
"	shl $1, %rdi\n"
"	site armed, test_armed_semaphore, \"\"\n"
"	adc -8(%rsp), %rdi\n"
"	site armed, test_armed_semaphore, \"\"\n"
"	lea 7(%rdi), %rax\n"
"	ret\n"
".cfi_endproc\n"
".size armed, . - armed\n"
/* As GCC splits functions: the part that is rarely executed is elsewhere, and jumps back into the middle. */
".globl partly\n"
".type partly, @function\n"
"partly:\n"
".cfi_startproc\n"
"	mov %rdi, %rax\n"
"	test $7, %dil\n"
"	je partly.cold\n"
"	nop\n"
"1:	add $5, %rax\n"
"	ret\n"
".cfi_endproc\n"
".size partly, . - partly\n"
".pushsection .text.unlikely, \"ax\"\n"
".type partly.cold, @function\n"
"partly.cold:\n"
"	inc %rax\n"
"	jmp 1b\n"
".size partly.cold, . - partly.cold\n"
".popsection\n");

static unsigned long input(unsigned long i)
{
	return (i % INPUTS) * 0x9e3779b97f4a7c15UL + (i & 1 ? 2 : 0x8000000000000000UL);
}

static void call(unsigned long i)
{
	unsigned long *right = expected[i % INPUTS];

	if (mixed(input(i), input(i + 1)) != right[0])
		wrong++;
	if (known(input(i)) != right[1])
		wrong++;
	if (armed(input(i)) != right[2])
		wrong++;
}

static void *caller(void *argument)
{
	(void)argument;
	for (unsigned long i = 0; i < calls; i++)
		call(i);
	return NULL;
}

static void *without_end(void *argument)
{
	for (unsigned long i = (unsigned long)argument;; i++)
		call(i);
	return NULL;
}

static void on_timer(int signal)
{
	(void)signal;
	call(3);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	const char *mode = argc > 2 ? argv[2] : "";
	pthread_t thread[THREADS];
	char line[16];

	calls = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
	background = !!strchr(mode, 'b');
	for (unsigned long i = 0; i < INPUTS; i++) {
		expected[i][0] = mixed(input(i), input(i + 1));
		expected[i][1] = known(input(i));
		expected[i][2] = armed(input(i));
	}
	for (long i = 0; background && i < BACKGROUND; i++)
		if (pthread_create(&thread[0], NULL, without_end, (void *)i))
			abort();
	if (strchr(mode, 't')) {
		struct sigaction action = { .sa_handler = on_timer, .sa_flags = SA_RESTART };
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
		struct itimerspec every = { { 0, 500000 }, { 0, 500000 } };
		timer_t timer;

		sigaction(SIGALRM, &action, NULL);
		if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL))
			abort();
	}
	printf("ready %p\n", (void *)seen);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long i = 0; i < threads; i++)
			if (pthread_create(&thread[i], NULL, caller, NULL))
				abort();
		for (int i = 0; i < threads; i++)
			pthread_join(thread[i], NULL);
		printf("%lu %lu\n", calls * threads, wrong);
		fflush(stdout);
	}
	return 0;
}
