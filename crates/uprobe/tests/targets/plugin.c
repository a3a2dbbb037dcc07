/* A program that calls a function of a library which it loads and unloads; with -DLIBRARY, that library.
 *
 * plugin LIBRARY: loads it, prints "ready" and waits for lines on stdin:
 *   call    calls the library's function, and one of its own, and prints "CALLS WRONG"
 *   unload  unloads the library
 *   map     maps memory in place of the function, with the bytes that it had
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone, used))

#ifdef LIBRARY
NOINLINE long plugged(long a, long b)
{
	volatile long local = a * 31;

	return local + b;
}
#else
#define CALLS 1000

NOINLINE long own(long a, long b)
{
	volatile long local = a * 17;

	return local + b;
}

int main(int argc, char **argv)
{
	void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
	long (*plugged)(long, long) = library ? (long (*)(long, long))dlsym(library, "plugged") : NULL;
	unsigned char bytes[64];
	char line[16];

	if (!plugged)
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "call", 4)) {
			long wrong = 0;

			for (long i = 0; i < CALLS; i++)
				wrong += own(i, 3) != i * 17 + 3 || (library && plugged(i, 3) != i * 31 + 3);
			printf("%d %ld\n", CALLS, wrong);
		} else if (!strncmp(line, "unload", 6)) {
			memcpy(bytes, (void *)plugged, sizeof(bytes));
			printf("%d\n", dlclose(library));
			library = NULL;
		} else if (!strncmp(line, "map", 3)) {
			uintptr_t page = (uintptr_t)plugged & -4096UL;
			void *mapped = mmap((void *)page, 8192, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

			if (mapped != (void *)page)
				return 1;
			memcpy((void *)plugged, bytes, sizeof(bytes));
			printf("mapped\n");
		}
		fflush(stdout);
	}
	return 0;
}
#endif
