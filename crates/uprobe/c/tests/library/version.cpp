// Prints the library's version, from C++.
#include <bpfcost_uprobe.h>
#include <stdio.h>

int main()
{
	bpfcost_uprobe_place place = {};

	static_assert(sizeof(place) == 56, "as the library has it");
	return puts(bpfcost_uprobe_version()) < 0 || bpfcost_uprobe_close(nullptr);
}
