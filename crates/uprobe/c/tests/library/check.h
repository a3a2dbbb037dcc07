/* Checks of the C tests: the first that fails ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <bpfcost_uprobe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two numbers are equal. */
#define EQUAL(left, right)                                                                     \
	do {                                                                                   \
		long long left_value = (long long)(left), right_value = (long long)(right);    \
		if (left_value != right_value) {                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n  the last error: %s\n", \
				__FILE__, __LINE__, #left, left_value, right_value,            \
				bpfcost_uprobe_error());                                       \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

#define TRUE(what) EQUAL(!!(what), 1)

/* The call fails with this number and a text. */
#define FAILS(call, number)                      \
	do {                                     \
		EQUAL(call, -(number));          \
		TRUE(bpfcost_uprobe_error()[0]); \
	} while (0)

/* Has the test that started this go on, and waits for its answer. */
static inline void step(const char *name)
{
	char line[64];

	printf("%s\n", name);
	fflush(stdout);
	TRUE(fgets(line, sizeof(line), stdin));
}

#endif
