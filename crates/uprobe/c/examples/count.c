/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts calls of a function of a running process by calls.bpf.c, and shows their arguments.
 *
 *	cc count.c -o count $(pkg-config --cflags --libs bpfcost_uprobe)
 *	count calls.bpf.o 4711 handle_request
 *
 * Ends with the process, or by Ctrl-C: the process goes on as it was before.
 */
#define _GNU_SOURCE
#include <bpfcost_uprobe.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_MS 100

/* A record of calls.bpf.c. */
struct call {
	uint64_t thread;
	uint64_t arguments[2];
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int number)
{
	is_interrupted = number;
}

static void print_call(void *context, pid_t pid, const void *record, size_t size)
{
	struct call call;

	(void)context;
	if (size != sizeof(call))
		return;
	memcpy(&call, record, sizeof(call));
	printf("process %d, thread %" PRIu64 ": %#" PRIx64 " %#" PRIx64 "\n", pid, call.thread,
	       call.arguments[0], call.arguments[1]);
}

static void print_thread(void *context, const void *key, size_t key_size, const void *values,
			 size_t value_size, size_t count)
{
	uint32_t thread;
	uint64_t calls;

	(void)context;
	if (key_size != sizeof(thread) || value_size != sizeof(calls) || count != 1)
		return;
	memcpy(&thread, key, sizeof(thread));
	memcpy(&calls, values, sizeof(calls));
	printf("thread %" PRIu32 ": %" PRIu64 " calls\n", thread, calls);
}

static int count_calls(struct bpfcost_uprobe *probes, pid_t pid, const char *function)
{
	struct bpfcost_uprobe_place place = {
		.program = "on_call",
		.name = function,
		.at = BPFCOST_UPROBE_ENTRY,
	};
	struct bpfcost_uprobe_counts counts;
	uint64_t attachment, lost = 0;
	int error, ended = 0;

	error = bpfcost_uprobe_attach(probes, pid, &place, 1, &attachment);
	if (error)
		return error;
	printf("attached\n");
	while (!is_interrupted && !ended) {
		fflush(stdout);
		poll(NULL, 0, INTERVAL_MS);
		error = bpfcost_uprobe_records(probes, "calls", print_call, NULL);
		if (error)
			return error;
		error = bpfcost_uprobe_has_ended(probes, attachment, &ended);
		if (error)
			return error;
	}
	error = bpfcost_uprobe_detach(probes, attachment, &counts, 1);
	if (error)
		return error;
	/* Calls since the last look. */
	error = bpfcost_uprobe_records(probes, "calls", print_call, NULL);
	if (error)
		return error;
	error = bpfcost_uprobe_lost_records(probes, "calls", &lost);
	if (error)
		return error;
	error = bpfcost_uprobe_map_each(probes, "by_thread", print_thread, NULL);
	printf("%" PRIu64 " hits, %" PRIu64 " missed, %" PRIu64 " records lost\n", counts.hits,
	       counts.missed, lost);
	return error;
}

int main(int count, char **arguments)
{
	struct sigaction action = { .sa_handler = on_interrupt };
	struct bpfcost_uprobe *probes = NULL;
	int error;

	if (count != 4) {
		fprintf(stderr, "usage: count OBJECT PID FUNCTION\n");
		return 2;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	error = bpfcost_uprobe_open(arguments[1], NULL, &probes);
	if (!error)
		error = count_calls(probes, atoi(arguments[2]), arguments[3]);
	if (error)
		fprintf(stderr, "error: %s\n", bpfcost_uprobe_error());
	bpfcost_uprobe_close(probes);
	return error ? 1 : 0;
}
