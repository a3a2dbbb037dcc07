/* A process that has no heap yet, and calls nothing that makes one.
 *
 * Prints "ready"; at a line of its input, says by "1" that its heap grew by 64 MiB, or "0"; ends with its input.
 */
#include <unistd.h>

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a)
{
	asm volatile("nopl 0x100(%rax)");
	return a + 1;
}

int main(void)
{
	char byte;

	write(1, "ready\n", 6);
	while (read(0, &byte, 1) == 1)
		if (byte == '\n' && work(1) == 2)
			write(1, sbrk(64 << 20) == (void *)-1 ? "0\n" : "1\n", 2);
	return 0;
}
