/* Calls a function with pointers: reads [h]. With h, it has a handler of SIGSEGV and SIGBUS from the start. Prints "ready",
 * and for each line on stdin what its command did; see `main`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE   4096
#define BYTES  (4 * PAGE)
#define CALLS  200000
#define ROUNDS 10000
/* That of the program's buffer for a string. */
#define ROOM   128

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

/* The result of reading a string. */
__attribute__((noinline, noclone, used)) long handle_string(const char *text, long result)
{
	asm volatile("" : : "r"(text));
	return result + 1;
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

/* Goes on for at least so many rounds. */
static void race(int most)
{
	char *memory = map();
	pthread_t thread;

	is_over = rounds = 0;
	pthread_create(&thread, NULL, change, memory);
	for (int i = 0; i < CALLS / ROUNDS * most || rounds < most; i++)
		call(memory + 8);
	is_over = 1;
	pthread_join(thread, NULL);
}

static char *unmapped(void)
{
	char *memory = map();

	munmap(memory, BYTES);
	return memory;
}

static char *forbidden(void)
{
	char *memory = map();

	mprotect(memory, BYTES, PROT_NONE);
	return memory;
}

/* 8 bytes that are there, before a page that is not. */
static char *edge(void)
{
	char *memory = map();

	mprotect(memory + PAGE, BYTES - PAGE, PROT_NONE);
	return memory + PAGE - 8;
}

/* A page of a file that ends before it. */
static char *past_end(void)
{
	int file = memfd_create("reads", 0);
	char *memory;

	if (ftruncate(file, PAGE))
		abort();
	memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	return memory + PAGE;
}

static char *null(void)
{
	return NULL;
}

static char *of_kernel(void)
{
	return (char *)0xffff888000000000;
}

static char *not_canonical(void)
{
	return (char *)0x8000000000000000;
}

static char *last(void)
{
	return (char *)-8;
}

/* What can't be read. */
static const struct {
	const char *name;
	char *(*make)(void);
} pointers[] = {
	{ "null", null },	    { "unmapped", unmapped },
	{ "forbidden", forbidden }, { "past the end", past_end },
	{ "edge", edge },	    { "of the kernel", of_kernel },
	{ "last", last },	    { "not canonical", not_canonical },
};

#define POINTERS (sizeof(pointers) / sizeof(*pointers))

static void bad(void)
{
	char *gone = unmapped();

	for (int i = 0; i < 1000; i++)
		call(gone);
	for (unsigned i = 0; i < POINTERS; i++)
		call(pointers[i].make());
}

static int read_bad(const char *name)
{
	for (unsigned i = 0; i < POINTERS; i++) {
		if (!strcmp(pointers[i].name, name)) {
			call(pointers[i].make());
			return 0;
		}
	}
	return EINVAL;
}

static void call_string(const char *text, long result)
{
	if (handle_string(text, result) != result + 1)
		abort();
}

/* Strings that end before what can't be read, and others. Returns how many can't be read. */
static int strings(void)
{
	char *end = edge() + 8, *middle = map() + PAGE - ROOM;
	int unread = 0;

	for (int length = 1; length < 3 * ROOM; length++) {
		call_string(end - length, length < ROOM ? -EFAULT : ROOM);
		unread += length < ROOM;
	}
	for (int length = 1; length < 3 * ROOM; length++) {
		end[-1] = 0;
		call_string(end - length, length < ROOM ? length : ROOM);
		end[-1] = 0x5a;
		/* The zero is in either page. */
		middle[length] = 0;
		call_string(middle, length < ROOM ? length + 1 : ROOM);
		middle[length] = 0x5a;
	}
	for (unsigned i = 0; i < POINTERS; i++, unread++)
		call_string(pointers[i].make(), -EFAULT);
	return unread;
}

/* A child that reads the same. */
static int child(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		for (int i = 0; i < 1000; i++)
			call(good);
		bad();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* From now on, a system call that helps to read memory is the end. */
static void filter(void)
{
	static const unsigned calls[] = { SYS_process_vm_readv, SYS_rt_sigprocmask,
					  SYS_rt_sigaction,	SYS_sigaltstack,
					  SYS_gettid,		SYS_getpid };
	struct sock_filter code[2 * sizeof(calls) / sizeof(*calls) + 2] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };
	struct sock_filter *next = code + 1;

	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		*next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		*next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	}
	*next = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		abort();
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
		} else if (!strncmp(line, "bad ", 4)) {
			result = read_bad(line + 4);
		} else if (!strcmp(line, "strings")) {
			result = strings();
		} else if (!strcmp(line, "child")) {
			result = child();
		} else if (!strcmp(line, "filter")) {
			filter();
		} else if (!strcmp(line, "race")) {
			race(ROUNDS);
		} else if (!strcmp(line, "short race")) {
			race(ROUNDS / 50);
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
