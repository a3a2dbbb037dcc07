/* Functions that leave by a jump to another one, which throws. At each line, calls each of them 1000 times, and prints
 * "CALLS WRONG".
 */
#include <cstdio>

#define NOIPA extern "C" __attribute__((noipa, used))

static void (*volatile chosen)(int);

NOIPA void thrower(int number)
{
	if (number >= 0)
		throw number;
}

NOIPA void pointer(int number)
{
	chosen(number);
	chosen(number - 1);
}

NOIPA void calls_pointer(int number)
{
	pointer(number + 1);
}

NOIPA void throws_itself(int number)
{
	thrower(number + 1);
}

NOIPA void catcher(int number)
{
	try {
		thrower(number);
	} catch (long) {
		std::puts("a long");
	}
}

NOIPA void rethrows(int number)
{
	catcher(number + 1);
}

int main()
{
	char line[16];
	void (*const all[])(int) = { calls_pointer, throws_itself, rethrows };

	chosen = thrower;
	std::puts("ready");
	std::fflush(stdout);
	while (std::fgets(line, sizeof(line), stdin)) {
		int calls = 0, wrong = 0;

		for (auto function : all)
			for (int i = 0; i < 1000; i++, calls++) {
				try {
					function(i);
					wrong++;
				} catch (int number) {
					wrong += number != i + 1;
				}
			}
		std::printf("%d %d\n", calls, wrong);
		std::fflush(stdout);
	}
}
