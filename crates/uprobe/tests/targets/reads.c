/* Calls a function with pointers: reads [h]. With h, it has a handler of SIGSEGV and SIGBUS from the start. Prints "ready",
 * and for each line on stdin what its command did; see `main`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES  (4 * 4096)
#define CALLS  200000
#define ROUNDS 10000

static _Atomic int is_over, rounds;
static sigjmp_buf before;
static volatile int caught, other;
static char *good;

/* Doesn't read what it is given. */
__attribute__((noinline, noclone, used)) unsigned long handle(const char *text, unsigned long byte)
{
	asm volatile("" : : "r"(text));
	return byte + 1;
}

static void call(const char *text)
{
	if (handle(text, 0x5a) != 0x5b)
		abort();
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	if (info->si_code <= 0) {
		other++;
		return;
	}
	caught++;
	siglongjmp(before, 1);
}

static void catch (void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigaddset(&action.sa_mask, SIGUSR2);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}

static void on_user(int number)
{
	volatile char local[256];

	memset((char *)local, 0x77, sizeof(local));
	call(good);
	for (unsigned i = 0; i < sizeof(local); i++)
		if (local[i] != 0x77)
			abort();
}

static char *map(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	memset(memory, 0x5a, BYTES);
	return memory;
}

/* Takes memory away, and puts other memory there, which is filled already. */
static void *change(void *memory)
{
	while (!is_over) {
		char *made = map();

		munmap(memory, BYTES);
		/* Where there is one CPU, the other thread runs now. */
		if (!(++rounds % 64))
			sched_yield();
		for (volatile int i = 0; i < 1000; i++)
			;
		if (mremap(made, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED)
			abort();
	}
	munmap(memory, BYTES);
	return NULL;
}

static void race(void)
{
	char *memory = map();
	pthread_t thread;

	is_over = rounds = 0;
	pthread_create(&thread, NULL, change, memory);
	for (int i = 0; i < CALLS || rounds < ROUNDS; i++)
		call(memory + 8);
	is_over = 1;
	pthread_join(thread, NULL);
}

/* What can't be read. */
static void bad(void)
{
	char *gone = map();

	munmap(gone, BYTES);
	for (int i = 0; i < 1000; i++)
		call(gone);
	call(NULL);
	call((char *)0xffff888000000000);
	call((char *)0x8000000000000000);
	call((char *)-8);
}

/* Faults, and comes back by its own handler. */
static int faults(int times)
{
	caught = 0;
	for (volatile int i = 0; i < times; i++)
		if (!sigsetjmp(before, 1))
			*(volatile char *)16 = 1;
	return caught;
}

int main(int count, char **arguments)
{
	char line[32];

	if (count > 1)
		catch ();
	good = map();
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int result = 0;

		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "good")) {
			for (int i = 0; i < 1000; i++)
				call(good + i % 7);
		} else if (!strcmp(line, "bad")) {
			bad();
		} else if (!strcmp(line, "race")) {
			race();
		} else if (!strcmp(line, "faults")) {
			result = faults(100);
		} else if (!strcmp(line, "crash")) {
			*(volatile char *)16 = 1;
		} else if (!strcmp(line, "replace")) {
			catch ();
			/* Longer than a tick of the clock. */
			usleep(50000);
		} else if (!strcmp(line, "block")) {
			sigset_t set;

			sigfillset(&set);
			pthread_sigmask(SIG_BLOCK, &set, NULL);
			usleep(50000);
		} else if (!strcmp(line, "block and bad") || !strcmp(line, "replace and bad")) {
			sigset_t set;

			/* So soon that helpers do not know yet. */
			call(good);
			if (line[0] == 'r')
				catch ();
			sigfillset(&set);
			if (line[0] == 'b')
				pthread_sigmask(SIG_BLOCK, &set, NULL);
			bad();
		} else if (!strcmp(line, "raise")) {
			other = 0;
			raise(SIGSEGV);
			raise(SIGBUS);
			result = other;
		} else if (!strcmp(line, "stack")) {
			stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
			struct sigaction action = { .sa_handler = on_user, .sa_flags = SA_ONSTACK };

			sigaltstack(&stack, NULL);
			sigaction(SIGUSR1, &action, NULL);
			for (int i = 0; i < 1000; i++)
				raise(SIGUSR1);
		} else if (!strcmp(line, "fork")) {
			pid_t child = fork();
			int status;

			if (!child) {
				if (count > 1)
					_exit(faults(10));
				*(volatile char *)16 = 1;
				_exit(0);
			}
			waitpid(child, &status, 0);
			result = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
		}
		printf("%d\n", result);
		fflush(stdout);
	}
	return 0;
}
