/* Stands in for a Java VM: a library of its name has its sites. Collects as often as each line of its input says: a collection
 * has two beginnings and two ends.
 *
 * With -DLIBRARY it is the library, else the program. Prints "ready", and "done" after each line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "site.h"

/* Microseconds of a collection: javagc leaves out those below a millisecond. */
#define LONG 2000

void collect(void);

#ifdef LIBRARY

asm(SITE_MACRO_OF("hotspot"));

void collect(void)
{
	asm volatile("site gc__begin, 0, \"\"\n\tnopl 0x100(%rax)");
	asm volatile("site mem__pool__gc__begin, 0, \"\"\n\tnopl 0x100(%rax)");
	usleep(LONG);
	asm volatile("site mem__pool__gc__end, 0, \"\"\n\tnopl 0x100(%rax)");
	asm volatile("site gc__end, 0, \"\"\n\tnopl 0x100(%rax)");
}

#else

int main(void)
{
	char line[32];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (unsigned long left = strtoul(line, NULL, 10); left; left--)
			collect();
		puts("done");
		fflush(stdout);
	}
	return 0;
}

#endif
