/* Has a static function `twice`, as ambiguous_other.c has. Prints "ready", then waits for the end of stdin. */
#include <stdio.h>

int other(int a);

static int __attribute__((noinline)) twice(int a)
{
	return a * 2;
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	return twice(getchar()) == other(1);
}
