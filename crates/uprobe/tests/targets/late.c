/* A process with a thread that does not stop when it is told to, or that is the kernel's own.
 *
 * late v: one thread is in vfork() until the other one has counted on.
 * late u: io_uring has a thread of the kernel (IORING_SETUP_SQPOLL); "ready 1" if it could be had.
 * Prints "ready", with 1 or 0; calls work() until stdin ends; then prints "CALLS WRONG".
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Milliseconds, at least, that the child lives: a stop begins long before their end. */
#define LONG 300

static _Atomic unsigned long counted;
static _Atomic int is_there;

__attribute__((noinline, noclone, used)) unsigned long work(unsigned long a)
{
	return a * 31 + 7;
}

static void *late(void *none)
{
	(void)none;
	pid_t child = vfork();

	if (child == 0) {
		unsigned long end = counted + LONG;

		is_there = 1;
		while (counted < end)
			usleep(1000);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return NULL;
}

static void *end(void *stop)
{
	char byte;

	while (read(0, &byte, 1) > 0 && byte != '\n')
		;
	*(_Atomic int *)stop = 1;
	return NULL;
}

int main(int count, char **arguments)
{
	static _Atomic int stop;
	unsigned long calls = 0, wrong = 0;
	pthread_t thread, ends;

	if (count > 1 && !strcmp(arguments[1], "u")) {
		struct io_uring_params params = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1000000 };

		is_there = syscall(SYS_io_uring_setup, 4, &params) >= 0;
	} else {
		pthread_create(&thread, NULL, late, NULL);
		while (!is_there)
			usleep(100);
	}
	printf("ready %d\n", is_there);
	fflush(stdout);
	pthread_create(&ends, NULL, end, &stop);
	for (; !stop; calls++, counted++) {
		if (work(calls) != calls * 31 + 7)
			wrong++;
		usleep(1000);
	}
	printf("%lu %lu\n", calls, wrong);
	return 0;
}
