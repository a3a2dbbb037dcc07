/* A short program, started often: it calls `work` as often as its first argument says, once of these in a constructor,
   and `library_work` of started_library.c likewise, if that is linked. Its children by fork, as many as the second says,
   do the same. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
unsigned long library_work(unsigned long number);
#else
#define library_work(number) (number)
#endif

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

static unsigned long sum;

__attribute__((constructor)) static void begin(void)
{
	sum += work(0);
}

int main(int argc, char **argv)
{
	unsigned long calls = strtoul(argv[1], NULL, 0);
	int children = argc > 2 ? atoi(argv[2]) : 0;
	int status, failed = 0;

	for (unsigned long call = 1; call < calls; call++)
		sum += work(call) + library_work(call);
	for (int child = 0; child < children; child++) {
		if (!fork()) {
			for (unsigned long call = 0; call < calls; call++)
				sum += work(call);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed || !sum;
}
