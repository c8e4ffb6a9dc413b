/*
 * Functions of one name in two files of one program: see tests/e2e/diff.rs. Built from copies of this file, with
 * -DPART=NAME for either part and with -DMAIN for the program. Arguments: units of work, and the cost of a unit in the
 * first and in the second part, in percent.
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef MAIN
unsigned first(unsigned n, unsigned percent);
unsigned second(unsigned n, unsigned percent);

static volatile unsigned sink;

int main(int argc, char **argv)
{
	int units = argc > 1 ? atoi(argv[1]) : 1000;
	unsigned costs[] = { argc > 2 ? atoi(argv[2]) : 100, argc > 3 ? atoi(argv[3]) : 100 };

	for (int i = 0; i < units; i++)
		sink += first(i, costs[0]) + second(i, costs[1]);
	printf("%u\n", sink);
	return 0;
}
#else
static __attribute__((noinline, noclone)) unsigned step(unsigned n, unsigned percent)
{
	unsigned sum = n;

	for (unsigned i = 0; i < 200u * percent; i++)
		sum = sum * 1664525u + 1013904223u;
	return sum;
}

unsigned PART(unsigned n, unsigned percent)
{
	return step(n, percent) + 1;
}
#endif
