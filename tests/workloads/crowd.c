// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * crowd PROCESSES SECONDS: so many processes at once. Each works for a moment in crowd_work(), once a second.
 *
 * Prints how many lived at once, and how many worked to the end.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static uint64_t crowd_work(uint64_t x)
{
	for (int i = 0; i < 30000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

/* Second after second, each at its own time in it. */
static int member(int number, int count, int seconds)
{
	struct timespec next;
	uint64_t x = number;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	clock_gettime(CLOCK_MONOTONIC, &next);
	next.tv_nsec = (uint64_t)number * 1000000000 / count;
	for (int i = 0; i < seconds; i++) {
		next.tv_sec++;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		x = crowd_work(x);
	}
	return x == 0;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, seconds = argc > 2 ? atoi(argv[2]) : 0;
	int live = 0, well = 0, status;

	if (count <= 0 || seconds <= 0) {
		fprintf(stderr, "usage: crowd PROCESSES SECONDS\n");
		return 2;
	}
	for (; live < count; live++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0)
			_exit(member(live, count, seconds));
	}
	while (wait(&status) > 0)
		well += status == 0;
	printf("live %d well %d\n", live, well);
	return well != count;
}
