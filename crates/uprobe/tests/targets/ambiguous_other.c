static int __attribute__((noinline)) twice(int a)
{
	return a + a + 1;
}

int other(int a)
{
	return twice(a) + 1;
}
