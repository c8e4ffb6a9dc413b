// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * threads COUNT SECONDS: COUNT busy threads named worker-0, worker-1, … each in a function that it shares with others.
 *
 * Even threads spin in work_even(), odd ones in work_odd().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double end;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static uint64_t work_even(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

__attribute__((noinline)) static uint64_t work_odd(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = (x ^ (x >> 7)) * 2862933555777941757ull + 1;
	return x;
}

static void *thread_main(void *number)
{
	uintptr_t n = (uintptr_t)number;
	uint64_t x = n;
	char name[16];

	snprintf(name, sizeof(name), "worker-%d", (int)n);
	pthread_setname_np(pthread_self(), name);
	while (now() < end)
		x = n % 2 ? work_odd(x) + 1 : work_even(x) + 1;
	return (void *)x;
}

int main(int argc, char **argv)
{
	pthread_t threads[1000];
	int count = argc > 1 ? atoi(argv[1]) : 2;

	if (count < 1 || count > 1000) {
		fprintf(stderr, "usage: threads COUNT SECONDS, COUNT up to 1000\n");
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
