/* The library of started.c: calls its function from its constructor. */
__attribute__((noipa)) unsigned long library_work(unsigned long number)
{
	return number * 17 + 3;
}

static unsigned long sum;

__attribute__((constructor)) static void begin(void)
{
	sum += library_work(0);
}
