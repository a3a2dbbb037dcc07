/* Functions that leave by a jump to another one, called as each line on stdin says. Answers "CALLS WRONG SUM": the calls of
 * the function, how many results were wrong, and the sum of all results.
 *
 *   alloc NAME THREADS CALLS   threads call a function of the C library that gives memory
 *   fork NAME CALLS            a child does, and then its child
 *   leaves CALLS               one that jumps
 *   spread CALLS               functions with all kinds of arguments and results
 *   choose CALLS               one that jumps on a condition, or by a short jump
 *   nested CALLS               three functions that jump to each other, the last to the first once more
 *   handled CALLS              a signal handler calls it while it is under way
 *   left CALLS                 a signal handler leaves it by siglongjmp: those calls have no result
 *   moved CALLS                another thread goes on with it: it waits in a coroutine meanwhile
 *   held THREADS               threads call it and wait there: answers "held"
 *   release                    ... until here
 *   many PLACES CALLS          it is called from so many places
 *   time CALLS                 answers with the nanoseconds of a call that ends by a RET, and of one that ends by a jump
 *   busy THREADS               threads call it until "stop", and its handler does
 * Prints "ready" with the address of seen, which forked children share.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tails.h"

#define MAX 64

/* What the callee does meanwhile. */
enum { NOTHING, RAISE, WAIT };
enum { CALL, LEAVE, SUSPEND };

static _Atomic number wrong, sum;
static number threads, calls;
static const char *name;
static int gate[2];
static __thread int on_signal;
static __thread sigjmp_buf out;
static __thread ucontext_t *self, *other;
static atomic_int inside, stop;

static inline long system_call(long call, long a, long b, long c)
{
	long result;

	asm volatile("syscall" : "=a"(result) : "a"(call), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

/* Calls no other function: an exception can't come from here. */
NOIPA number callee(long what, number value, long fd)
{
	char byte;

	if (what == RAISE)
		system_call(SYS_tgkill, system_call(SYS_getpid, 0, 0, 0), system_call(SYS_gettid, 0, 0, 0), SIGUSR1);
	if (what == WAIT) {
		inside++;
		while (system_call(SYS_read, fd, (long)&byte, 1) != 1)
			;
	}
	return value * 31 + 7;
}

NOIPA number leaves(long what, number value, long fd)
{
	if (!value)
		return 7;
	return callee(what, value + 1, fd);
}

static number leaves_result(number value)
{
	return value ? (value + 1) * 31 + 7 : 7;
}

static void expect(number result, number right)
{
	if (result != right)
		wrong++;
	sum += result;
}

static void *allocate(number i)
{
	number size = 1 + i % 7 * 97 + (i % 1000 ? 0 : 150000);
	void *at = NULL;

	if (!strcmp(name, "calloc"))
		return calloc(1, size);
	if (!strcmp(name, "realloc"))
		return realloc(i % 2 ? NULL : malloc(3), size);
	if (!strcmp(name, "memalign"))
		return memalign(64, size);
	if (!strcmp(name, "aligned_alloc"))
		return aligned_alloc(64, size);
	if (!strcmp(name, "valloc"))
		return valloc(size);
	if (!strcmp(name, "pvalloc"))
		return pvalloc(size);
	return posix_memalign(&at, 64, size) ? NULL : at;
}

static void *allocates(void *unused)
{
	int is_posix = !strcmp(name, "posix_memalign");
	number mine = 0;

	for (number i = 0; i < calls; i++) {
		unsigned char *at = allocate(i);

		if (!at || (!strcmp(name, "calloc") && (at[0] | at[i % 7 * 97])))
			wrong++;
		memset(at, 0xff, 1);
		mine += is_posix ? 0 : (number)at;
		free(at);
	}
	sum += mine;
	return unused;
}

static void together(void *(*thread)(void *), number threads)
{
	pthread_t all[MAX];

	for (number i = 0; i < threads; i++)
		pthread_create(&all[i], NULL, thread, (void *)i);
	for (number i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
}

/* The child and its child tell by their exit status whether something was wrong. */
static void forks(int depth, _Atomic number *shared)
{
	pid_t child = fork();
	int status = 1;

	if (child == 0) {
		wrong = sum = 0;
		allocates(NULL);
		*shared += sum;
		if (depth)
			forks(depth - 1, shared);
		_exit(wrong != 0);
	}
	waitpid(child, &status, 0);
	if (status)
		wrong++;
}

static void on_usr1(int signal)
{
	(void)signal;
	if (on_signal == CALL)
		expect(leaves(NOTHING, 5, 0), leaves_result(5));
	else if (on_signal == LEAVE)
		siglongjmp(out, 1);
	else
		swapcontext(self, other);
}

static void on_alarm(int signal)
{
	(void)signal;
	if (leaves(NOTHING, 5, 0) != leaves_result(5))
		wrong++;
}

static struct coroutine {
	ucontext_t context, caller;
	char stack[65536];
	number number, done;
} *coroutine;

static void *runs(void *unused)
{
	on_signal = SUSPEND;
	self = &coroutine->context;
	other = &coroutine->caller;
	swapcontext(other, self);
	return unused;
}

static void coroutine_main(void)
{
	expect(leaves(RAISE, coroutine->number, 0), leaves_result(coroutine->number));
	coroutine->done = 1;
	/* The thread is another one by now. */
	setcontext(&coroutine->caller);
}

static void *moves(void *unused)
{
	for (volatile number i = 0; i < calls; i++) {
		coroutine->number = i + 1;
		coroutine->done = 0;
		getcontext(&coroutine->context);
		coroutine->context.uc_stack.ss_sp = coroutine->stack;
		coroutine->context.uc_stack.ss_size = sizeof(coroutine->stack);
		makecontext(&coroutine->context, coroutine_main, 0);
		together(runs, 1);
		if (coroutine->done)
			wrong++;
		together(runs, 1);
		if (!coroutine->done)
			wrong++;
	}
	return unused;
}

static void *holds(void *at)
{
	number i = (number)at + 1;

	expect(leaves(WAIT, i, gate[0]), leaves_result(i));
	return NULL;
}

static void *works(void *unused)
{
	struct itimerval timer = { { 0, 500 }, { 0, 500 } };

	setitimer(ITIMER_REAL, &timer, NULL);
	for (number i = 1; !stop; i++) {
		if (leaves(NOTHING, i, 0) != leaves_result(i))
			wrong++;
		if (keeps(i))
			wrong++;
	}
	return unused;
}

/* Calls `leaves` from many places: sub rsp, 8; mov rax, leaves; call rax; add rsp, 8; ret. */
static void many(number places, number calls)
{
	enum { PLACE = 32 };
	static unsigned char *code;
	void *to = leaves;

	if (!code) {
		code = mmap(NULL, places * PLACE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (number i = 0; i < places; i++) {
			unsigned char *at = code + i * PLACE;

			memcpy(at, "\x48\x83\xec\x08\x48\xb8", 6);
			memcpy(at + 6, &to, 8);
			memcpy(at + 14, "\xff\xd0\x48\x83\xc4\x08\xc3", 7);
		}
	}
	for (number j = 0; j < calls; j++)
		for (number i = 0; i < places; i++)
			expect(((number(*)(long, number, long))(code + i * PLACE))(NOTHING, i + 1, 0), leaves_result(i + 1));
}

/* The least of 20 rounds. */
static double nanoseconds(number value, number calls)
{
	double least = 1e9;

	for (int round = 0; round < 20; round++) {
		struct timespec start, end;

		clock_gettime(CLOCK_MONOTONIC, &start);
		for (number i = 0; i < calls; i++)
			leaves(NOTHING, value, 0);
		clock_gettime(CLOCK_MONOTONIC, &end);

		double took = (end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec);

		if (took / calls < least)
			least = took / calls;
	}
	return least;
}

int main(void)
{
	char line[256], word[32];
	pthread_t held[MAX];
	static number count, a, b;
	number *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static char kind[32];

	/* The last number of the page is this program's own. */
	_Atomic number *shared = (_Atomic number *)seen + 511;
	struct sigaction action = { .sa_handler = on_usr1, .sa_flags = SA_NODEFER };

	sigaction(SIGUSR1, &action, NULL);
	action.sa_handler = on_alarm;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	coroutine = calloc(1, sizeof(*coroutine));
	if (pipe(gate))
		return 1;
	printf("ready %p\n", (void *)seen);
	fflush(stdout);
	name = kind;
	while (fgets(line, sizeof(line), stdin)) {
		number made = 0;

		a = b = 0;
		wrong = sum = *shared = 0;
		if (sscanf(line, "alloc %31s %lu %lu", kind, &threads, &calls) == 3) {
			together(allocates, threads);
			made = threads * calls;
		} else if (sscanf(line, "fork %31s %lu", kind, &calls) == 2) {
			forks(1, shared);
			sum = *shared;
			made = 2 * calls;
		} else if (sscanf(line, "%31s %lu %lu", word, &a, &b) < 1) {
			return 1;
		} else if (!strcmp(word, "leaves")) {
			for (number i = 0; i < a; i++)
				expect(leaves(NOTHING, i % 3 ? i : 0, 0), leaves_result(i % 3 ? i : 0));
			made = a;
		} else if (!strcmp(word, "spread")) {
			for (number i = 0; i < a; i++) {
				struct two two = spread(i, 2, 3, 4, 5, 6, i, 8, i);

				expect(two.a, i + 1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 5 + 6 * 6);
				if (two.b != i * 7 + 8 * 8 + 9 * i || halves(i) != (i + 1) / 2.0 || keeps(i))
					wrong++;
			}
			made = a;
		} else if (!strcmp(word, "choose")) {
			for (number i = 0; i < a; i++) {
				expect(conditional(i), i & 1 ? 2 * i : i + 5);
				expect(brief(i), 2 * (i + 3));
			}
			made = a;
		} else if (!strcmp(word, "nested")) {
			for (number i = 0; i < a; i++)
				expect(first(i), i & 1 ? i - 1 + 12 : i + 6);
			made = a;
		} else if (!strcmp(word, "handled")) {
			on_signal = CALL;
			for (number i = 1; i <= a; i++)
				expect(leaves(RAISE, i, 0), leaves_result(i));
			made = 2 * a;
		} else if (!strcmp(word, "left")) {
			on_signal = LEAVE;
			for (volatile number i = 1; i <= a; i++)
				if (!sigsetjmp(out, 0)) {
					leaves(RAISE, i, 0);
					wrong++;
				}
			made = a;
		} else if (!strcmp(word, "moved")) {
			calls = made = a;
			moves(NULL);
		} else if (!strcmp(word, "held")) {
			int before = inside;

			for (count = 0; count < a; count++)
				pthread_create(&held[count], NULL, holds, (void *)count);
			while (inside != before + (int)a)
				usleep(100);
			printf("held\n");
			fflush(stdout);
			continue;
		} else if (!strcmp(word, "release")) {
			static char bytes[MAX];

			if (write(gate[1], bytes, count) != (ssize_t)count)
				return 1;
			for (number i = 0; i < count; i++)
				pthread_join(held[i], NULL);
			made = count;
		} else if (!strcmp(word, "many")) {
			many(a, b);
			made = a * b;
		} else if (!strcmp(word, "time")) {
			printf("%.2f %.2f\n", nanoseconds(0, a), nanoseconds(1, a));
			fflush(stdout);
			continue;
		} else if (!strcmp(word, "busy")) {
			stop = 0;
			for (count = 0; count < a; count++)
				pthread_create(&held[count], NULL, works, NULL);
			printf("busy\n");
			fflush(stdout);
			fgets(line, sizeof(line), stdin);
			stop = 1;
			for (number i = 0; i < count; i++)
				pthread_join(held[i], NULL);
			struct itimerval none = { { 0, 0 }, { 0, 0 } };

			setitimer(ITIMER_REAL, &none, NULL);
		} else {
			return 1;
		}
		printf("%lu %lu %lx\n", made, wrong, sum);
		fflush(stdout);
	}
	return 0;
}
