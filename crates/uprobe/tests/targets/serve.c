/* Threads that handle requests: serve THREADS CALLS [t]. Each call passes a text and its length, and returns a number that
 * depends on both. With t, a 2 kHz timer's handler handles requests too. Prints "ready", waits for a line, calls, prints
 * "CALLS WRONG" and waits for a line to end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static _Atomic unsigned long calls, wrong;
static unsigned long each;

__attribute__((noinline, noclone, used)) unsigned long handle(const char *text, unsigned long length)
{
	unsigned long sum = 7;

	for (unsigned long i = 0; i < length; i++)
		sum = sum * 31 + (unsigned char)text[i];
	return sum;
}

static void request(unsigned long i)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "request %lu", i);
	unsigned long expected = 7;

	for (int at = 0; at < length; at++)
		expected = expected * 31 + (unsigned char)text[at];
	if (handle(text, length) != expected)
		wrong++;
	calls++;
}

static void on_timer(int number)
{
	request(number);
}

static void *work(void *argument)
{
	for (unsigned long i = 0; i < each; i++)
		request(i);
	return argument;
}

int main(int count, char **arguments)
{
	int threads = atoi(arguments[1]);
	pthread_t all[threads];
	char line[16];

	each = strtoul(arguments[2], NULL, 10);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && line[0] != 'e') {
		if (count > 3) {
			struct itimerval every = { { 0, 500 }, { 0, 500 } };

			signal(SIGALRM, on_timer);
			setitimer(ITIMER_REAL, &every, NULL);
		}
		for (int i = 0; i < threads; i++)
			pthread_create(&all[i], NULL, work, NULL);
		for (int i = 0; i < threads; i++)
			pthread_join(all[i], NULL);
		if (count > 3) {
			struct itimerval never = { 0 };

			setitimer(ITIMER_REAL, &never, NULL);
		}
		printf("%lu %lu\n", calls, wrong);
		fflush(stdout);
	}
	return 0;
}
