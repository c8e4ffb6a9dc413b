// SPDX-License-Identifier: MIT OR Apache-2.0
/* vdso_clock SECONDS: asks for the time in a loop, so that most samples lie in the vDSO, under ask_time(). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) static double ask_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double end = ask_time() + (argc > 1 ? atof(argv[1]) : 1);
	unsigned long calls = 1;

	while (ask_time() < end)
		calls++;
	printf("%lu\n", calls);
	return 0;
}
