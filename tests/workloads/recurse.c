// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * recurse SECONDS [SEED]: one busy thread of recursive calls, a random 0-60 frames deep each time.
 *
 * Prints the number of descents: with and without a recorder, their ratio is the slow-down.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_DEPTH 60
#define DESCENTS_PER_CLOCK_READ 64

static uint64_t state;

/* xorshift64: the same depths for the same seed. */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static uint64_t leaf(uint64_t x)
{
	for (int i = 0; i < 200; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

__attribute__((noinline)) static uint64_t descend(unsigned int depth, uint64_t x)
{
	if (depth == 0)
		return leaf(x);
	x = descend(depth - 1, x + depth);
	/* Work behind the call: it cannot become a jump. */
	return x ^ (x >> 7);
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 1);
	unsigned long descents = 0;
	uint64_t x = 1;

	state = argc > 2 ? strtoull(argv[2], NULL, 10) : 88172645463325252ull;
	while (now() < end) {
		for (int i = 0; i < DESCENTS_PER_CLOCK_READ; i++)
			x = descend(next_random() % (MAX_DEPTH + 1), x);
		descents += DESCENTS_PER_CLOCK_READ;
	}
	printf("%lu\n", descents);
	return x == 0; /* never: keeps x alive */
}
