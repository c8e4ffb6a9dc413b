// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * many_stacks THREADS SECONDS: as good as every sample has a stack of its own.
 *
 * Each descent goes 40 calls down, at each step through one of two functions by a bit of a random number, and then
 * spins for about 20 us: 2^40 different stacks. A recorder meets as many distinct stacks as it takes samples.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 40

static double end;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	for (int i = 0; i < 8000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

static uint64_t right(uint64_t path, int depth);

__attribute__((noinline)) static uint64_t left(uint64_t path, int depth)
{
	if (depth == 0)
		return spin(path) + 1;
	path = path & 1 ? left(path >> 1, depth - 1) : right(path >> 1, depth - 1);
	/* Work behind the call that no loop can stand for. */
	return path ^ (path >> 7);
}

__attribute__((noinline)) static uint64_t right(uint64_t path, int depth)
{
	if (depth == 0)
		return spin(path) + 2;
	path = path & 1 ? left(path >> 1, depth - 1) : right(path >> 1, depth - 1);
	return path ^ (path >> 9);
}

static void *thread_main(void *seed)
{
	uint64_t state = 88172645463325252ull + (uintptr_t)seed;
	uint64_t x = 0;

	while (now() < end) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		x += left(state, DEPTH);
	}
	return (void *)x;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count = argc > 1 ? atoi(argv[1]) : 1;

	if (count < 1 || count > 64) {
		fprintf(stderr, "usage: many_stacks THREADS SECONDS, THREADS up to 64\n");
		return 2;
	}
	end = now() + (argc > 2 ? atof(argv[2]) : 1);
	for (intptr_t i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, thread_main, (void *)i))
			return 2;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
