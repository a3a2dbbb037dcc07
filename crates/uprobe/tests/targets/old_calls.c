/* Makes the calls `bpf` and `perf_event_open` as programs of 32 bits do, with arguments that no kernel takes. Prints the results. */
#include <stdio.h>

static int call(int number)
{
	int result;

	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(number), "b"(-1), "c"(0), "d"(0), "S"(0), "D"(0)
		     : "memory", "r8", "r9", "r10", "r11");
	return result;
}

int main(void)
{
	printf("%d\n%d\n", call(357), call(336));
	return 0;
}
