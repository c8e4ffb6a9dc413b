// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * storm THREADS SECONDS: THREADS threads at once, each of which works for a moment in storm_work() and ends, then the
 * next as many, until SECONDS are over.
 *
 * Prints how many threads were at once and how many in all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_barrier_t all_there;
static volatile uint64_t result;

__attribute__((noinline)) static uint64_t storm_work(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

static void *one(void *number)
{
	pthread_barrier_wait(&all_there);
	result = storm_work((uintptr_t)number);
	return NULL;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	double end = now() + (argc > 2 ? atof(argv[2]) : 0);
	pthread_t *threads = calloc(count > 0 ? count : 1, sizeof(*threads));
	pthread_attr_t small;
	long total = 0;

	if (count <= 0 || argc < 3 || !threads) {
		fprintf(stderr, "usage: storm THREADS SECONDS\n");
		return 2;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	while (now() < end) {
		pthread_barrier_init(&all_there, NULL, count);
		for (int i = 0; i < count; i++) {
			if (pthread_create(&threads[i], &small, one, (void *)(uintptr_t)(i + 1))) {
				perror("pthread_create");
				return 1;
			}
		}
		for (int i = 0; i < count; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_destroy(&all_there);
		total += count;
	}
	printf("threads %d total %ld\n", count, total);
	return 0;
}
