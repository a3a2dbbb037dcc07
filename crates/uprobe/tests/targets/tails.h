/* Functions of tails.c that leave by a jump to another one. */
#include <stdio.h>

#define NOIPA __attribute__((noipa, used))

typedef unsigned long number;

struct two {
	number a, b;
};

/* Integers in registers and on the stack, vector registers, two results. */
NOIPA struct two spread_callee(number a, number b, number c, number d, number e, number f, double g, double h, number i)
{
	return (struct two){ a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f, (number)(g * 7 + h * 8) + 9 * i };
}

struct two spread(number a, number b, number c, number d, number e, number f, double g, double h, number i);

NOIPA double half(double a)
{
	return a / 2;
}

NOIPA double halves(double a)
{
	return half(a + 1);
}

number conditional(number a);
number brief(number a);
number wide(number a);
number first(number a);
number keeps(number a);

asm(
".globl spread\n"
".type spread, @function\n"
"spread:\n"
".cfi_startproc\n"
"	inc %rdi\n"
"	{disp32} jmp spread_callee\n"
".cfi_endproc\n"
".size spread, . - spread\n"
"	.balign 16\n"
/* A conditional jump out of the function, with r11 in use. */
".globl conditional\n"
".type conditional, @function\n"
"conditional:\n"
".cfi_startproc\n"
"	mov $5, %r11d\n"
"	test $1, %dil\n"
"	{disp32} jne wide\n"
"	lea (%rdi,%r11), %rax\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n"
".size conditional, . - conditional\n"
"	.balign 16\n"
/* A short jump: its place has the instruction before as well. */
".globl brief\n"
".type brief, @function\n"
"brief:\n"
".cfi_startproc\n"
"	xchg %ax, %ax\n"
"	lea 3(%rdi), %rdi\n"
"	jmp .Lwide\n"
".cfi_endproc\n"
".size brief, . - brief\n"
".globl wide\n"
".type wide, @function\n"
"wide:\n"
".Lwide:\n"
".cfi_startproc\n"
"	lea (%rdi,%rdi), %rax\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n"
".size wide, . - wide\n"
"	.balign 16\n"
/* Each jumps to the next one; the last to the first, once, where bit 0 is set. */
".globl first\n"
".type first, @function\n"
"first:\n"
".cfi_startproc\n"
"	add $2, %rdi\n"
"	{disp32} jmp second\n"
".cfi_endproc\n"
".size first, . - first\n"
"	.balign 16\n"
".globl second\n"
".type second, @function\n"
"second:\n"
".cfi_startproc\n"
"	add $4, %rdi\n"
"	{disp32} jmp third\n"
".cfi_endproc\n"
".size second, . - second\n"
"	.balign 16\n"
".globl third\n"
".type third, @function\n"
"third:\n"
".cfi_startproc\n"
"	btr $0, %rdi\n"
"	{disp32} jc first\n"
"	mov %rdi, %rax\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n"
".size third, . - third\n"
"	.balign 16\n"
/* What this calls keeps all registers but RAX, as GCC finds out of functions in one file. 1 if something changed. */
".globl keeps\n"
".type keeps, @function\n"
"keeps:\n"
".cfi_startproc\n"
"	lea 3(%rdi), %rcx\n"
"	lea 6(%rdi), %rdx\n"
"	lea 9(%rdi), %rsi\n"
"	lea 12(%rdi), %r8\n"
"	lea 15(%rdi), %r9\n"
"	lea 18(%rdi), %r10\n"
"	lea 21(%rdi), %r11\n"
"	movq %rdi, %xmm9\n"
"	call keeper\n"
"	sub %rdi, %rax\n"
"	sub %rdi, %rcx\n"
"	xor $3, %rcx\n"
"	or %rcx, %rax\n"
"	sub %rdi, %rdx\n"
"	xor $6, %rdx\n"
"	or %rdx, %rax\n"
"	sub %rdi, %rsi\n"
"	xor $9, %rsi\n"
"	or %rsi, %rax\n"
"	sub %rdi, %r8\n"
"	xor $12, %r8\n"
"	or %r8, %rax\n"
"	sub %rdi, %r9\n"
"	xor $15, %r9\n"
"	or %r9, %rax\n"
"	sub %rdi, %r10\n"
"	xor $18, %r10\n"
"	or %r10, %rax\n"
"	sub %rdi, %r11\n"
"	xor $21, %r11\n"
"	or %r11, %rax\n"
"	movq %xmm9, %rcx\n"
"	sub %rdi, %rcx\n"
"	or %rcx, %rax\n"
"	ret\n"
".cfi_endproc\n"
".size keeps, . - keeps\n"
"	.balign 16\n"
".globl keeper\n"
".type keeper, @function\n"
"keeper:\n"
".cfi_startproc\n"
"	mov %rdi, %rax\n"
"	{disp32} jmp kept\n"
".cfi_endproc\n"
".size keeper, . - keeper\n"
"	.balign 16\n"
".globl kept\n"
".type kept, @function\n"
"kept:\n"
".cfi_startproc\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n"
".size kept, . - kept\n");

/* Refused: what these lead to may throw, may look at its caller, or jumps back. */
number (*volatile chosen)(number);

NOIPA number by_pointer(number a)
{
	return chosen(a + 1) + 1;
}

NOIPA number points(number a)
{
	return by_pointer(a + 1);
}

NOIPA number pointed(number a)
{
	return chosen(a + 1);
}

NOIPA number prints_callee(number a)
{
	return puts("") + a;
}

NOIPA number prints(number a)
{
	return prints_callee(a + 1);
}

NOIPA number looks_callee(number a)
{
	return (number)__builtin_return_address(0) + a;
}

NOIPA number looks(number a)
{
	return looks_callee(a + 1);
}

number parted(number a);

asm(
".globl parted\n"
".type parted, @function\n"
"parted:\n"
".cfi_startproc\n"
"	test %rdi, %rdi\n"
"	{disp32} jne parted_cold\n"
"parted_on:\n"
"	lea 1(%rdi), %rax\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n"
".size parted, . - parted\n"
".globl framed\n"
".type framed, @function\n"
"framed:\n"
".cfi_startproc\n"
"	push %rbx\n"
".cfi_adjust_cfa_offset 8\n"
"	{disp32} jmp framed_cold\n"
".cfi_endproc\n"
".size framed, . - framed\n"
".balign 16\n"
"parted_cold:\n"
".cfi_startproc\n"
"	dec %rdi\n"
"	{disp32} jmp parted_on\n"
".cfi_endproc\n"
"framed_cold:\n"
".cfi_startproc\n"
".cfi_adjust_cfa_offset 8\n"
"	pop %rbx\n"
".cfi_adjust_cfa_offset -8\n"
"	nopl 0(%rax,%rax,1)\n"
"	ret\n"
".cfi_endproc\n");
