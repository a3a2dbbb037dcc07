/* Threads and processes that others could take for one another. Each command answers with "CALLS WRONG": how often
   `handle` was called, and how often something of the program's own was not as it has to be.

   call N    calls it N times
   clone N   a process that shares the memory calls it N times, while this one does
   stay      makes such a process, which waits, and answers with its number
   go N      that process calls it N times, while this one does, and ends
   vfork N   this process and its child of vfork call it in turns
   gs N      sets the GS base to the thread's own FS base, and calls it N times
   nogs N    sets the GS base to 0, and calls it N times
   reuse N   a thread that is not the first one on its stack calls it N times: the one before hit the probe, made the
             thread that makes this one, and ended */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (256 << 10)

static _Atomic unsigned long wrong;
static _Atomic int may_go;
static unsigned long most;

/* Gets the process and the thread as the kernel numbers them. */
__attribute__((noipa)) unsigned long handle(unsigned long self)
{
	volatile unsigned long kept = self;

	return kept * 31 + 7;
}

static unsigned long self(void)
{
	return (unsigned long)syscall(SYS_getpid) << 32 | syscall(SYS_gettid);
}

static void call(unsigned long count)
{
	unsigned long thread = self();

	for (unsigned long i = 0; i < count; i++)
		if (handle(thread) != thread * 31 + 7)
			wrong++;
}

static int cloned(void *count)
{
	while (!may_go)
		usleep(100);
	call((unsigned long)count);
	return 0;
}

static int start(unsigned long count)
{
	char *stack = malloc(STACK);
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD;

	return clone(cloned, stack + STACK, flags, (void *)count);
}

static void end(int child)
{
	int status;

	if (waitpid(child, &status, 0) != child || status)
		wrong++;
}

static void set_gs(unsigned long gs)
{
	unsigned long now = 1;

	syscall(SYS_arch_prctl, ARCH_SET_GS, gs);
	call(most);
	syscall(SYS_arch_prctl, ARCH_GET_GS, &now);
	if (now != gs)
		wrong++;
}

/* Where the first thread was, and the third one is. */
static pthread_t first, third;

static void *last(void *unused)
{
	call(most);
	return unused;
}

static void *between(void *unused)
{
	while (!may_go)
		usleep(100);
	if (pthread_create(&third, NULL, last, NULL))
		abort();
	pthread_join(third, NULL);
	return unused;
}

static void *begin(void *second)
{
	call(1);
	if (pthread_create(second, NULL, between, NULL))
		abort();
	return NULL;
}

static void reuse(void)
{
	pthread_t second;

	if (pthread_create(&first, NULL, begin, &second))
		abort();
	pthread_join(first, NULL);
	may_go = 1;
	pthread_join(second, NULL);
	if (!pthread_equal(first, third))
		wrong++;
}

int main(void)
{
	char line[64], name[16];
	int child = 0;

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long calls;

		most = 0;
		sscanf(line, "%15s %lu", name, &most);
		calls = most;
		wrong = 0;
		if (!strcmp(name, "stay")) {
			may_go = 0;
			child = start(100000);
			printf("%d 0\n", child);
			fflush(stdout);
			continue;
		}
		if (!strcmp(name, "call")) {
			call(most);
		} else if (!strcmp(name, "clone")) {
			may_go = 1;
			child = start(most);
			call(most);
			end(child);
			calls = 2 * most;
		} else if (!strcmp(name, "go")) {
			may_go = 1;
			call(most);
			end(child);
			calls = most + 100000;
		} else if (!strcmp(name, "vfork")) {
			for (unsigned long i = 0; i < most; i++) {
				child = vfork();
				if (!child) {
					call(1);
					_exit(0);
				}
				call(1);
				end(child);
			}
			calls = 2 * most;
		} else if (!strcmp(name, "gs")) {
			unsigned long fs;

			syscall(SYS_arch_prctl, ARCH_GET_FS, &fs);
			set_gs(fs);
		} else if (!strcmp(name, "nogs")) {
			set_gs(0);
		} else if (!strcmp(name, "reuse")) {
			may_go = 0;
			reuse();
			calls = most + 1;
		}
		printf("%lu %lu\n", calls, wrong);
		fflush(stdout);
	}
	return 0;
}
