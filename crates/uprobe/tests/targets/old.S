/* A program of 32-bit code: prints "ready", waits for a line and prints "1 0". */
	.globl _start
_start:
	mov $ready, %ecx
	mov $6, %edx
	call print
	mov $3, %eax			/* read */
	xor %ebx, %ebx
	mov $line, %ecx
	mov $16, %edx
	int $0x80
	mov $counts, %ecx
	mov $4, %edx
	call print
	mov $1, %eax			/* exit */
	xor %ebx, %ebx
	int $0x80
	.globl print
	.type print, @function
print:
	mov $4, %eax			/* write */
	mov $1, %ebx
	int $0x80
	ret
	.size print, . - print
ready:	.ascii "ready\n"
counts:	.ascii "1 0\n"
	.comm line, 16
	.section .note.GNU-stack, "", @progbits
