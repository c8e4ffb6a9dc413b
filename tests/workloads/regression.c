/*
 * A program with a known change: three functions that take turns, each some 4 ms for a unit of work, and a helper that is
 * inlined or not. Built several times: -DPARSE=N sets the cost of one of them in percent, -DDIGEST renames another,
 * -DHELPER_KEPT keeps the helper out of line. Argument: units of work.
 */
#include <stdio.h>
#include <stdlib.h>

#ifndef PARSE
#define PARSE 100
#endif
#ifdef DIGEST
#define hash digest
#endif
#ifdef HELPER_KEPT
#define HELPER __attribute__((noinline))
#else
#define HELPER inline __attribute__((always_inline))
#endif
#define KEEP __attribute__((noinline, noclone))

static volatile unsigned sink;

static HELPER unsigned spin(unsigned seed, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		seed = (seed ^ (seed >> 3)) * 1664525u + i;
	return seed;
}

static KEEP unsigned parse(unsigned n)
{
	unsigned sum = n;

	for (unsigned i = 0; i < 200u * PARSE; i++)
		sum = sum * 1664525u + 1013904223u;
	return sum;
}

static KEEP unsigned hash(unsigned n)
{
	unsigned sum = n;

	for (unsigned i = 0; i < 16000; i++)
		sum = (sum ^ (sum >> 3)) * 16777619u;
	return sum;
}

static KEEP unsigned store(unsigned n)
{
	return spin(n, 16000) + 1;
}

static KEEP unsigned request(unsigned n)
{
	return parse(n) + hash(n) + store(n) + 1;
}

int main(int argc, char **argv)
{
	int units = argc > 1 ? atoi(argv[1]) : 1000;

	for (int i = 0; i < units; i++)
		sink += request(i);
	printf("%u\n", sink);
	return 0;
}
