/* Calls `work` as often as its second argument says, loads the library that its first one names, and calls that one's
   `library_work` as often. With a third argument, a child by fork loads the library, and calls `work` too. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long function(unsigned long number);

static volatile unsigned long sum;

__attribute__((noipa)) unsigned long work(unsigned long number)
{
	return number * 31 + 7;
}

static void call(function *called, unsigned long calls)
{
	for (unsigned long number = 0; number < calls; number++)
		sum += called(number);
}

static function *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	function *loaded = library ? (function *)dlsym(library, "library_work") : NULL;

	if (!loaded)
		_exit(2);
	return loaded;
}

int main(int argc, char **argv)
{
	unsigned long calls = strtoul(argv[2], NULL, 0);
	int status = 0;

	call(work, calls);
	if (argc < 4) {
		call(load(argv[1]), calls);
		return 0;
	}
	if (!fork()) {
		call(work, calls);
		call(load(argv[1]), calls);
		_exit(0);
	}
	wait(&status);
	return status != 0;
}
