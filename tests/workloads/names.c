// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * names SECONDS: one after the other, each for a part of the time, busy
 *
 * the main thread as name-one, then as name-two; a thread as thread-one, then as thread-two; a child that this thread
 * forks, which has its name, and not the process's.
 *
 * Prints "main NS" and "thread NS", when each was renamed, and "child PID".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double part;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void spin(void)
{
	uint64_t end = now_ns() + (uint64_t)(part * 1e9);

	while (now_ns() < end)
		;
}

static void rename_and_spin(const char *who, const char *one, const char *two)
{
	prctl(PR_SET_NAME, one);
	spin();
	printf("%s %llu\n", who, (unsigned long long)now_ns());
	prctl(PR_SET_NAME, two);
	spin();
}

static void *thread_main(void *unused)
{
	pid_t child;

	rename_and_spin("thread", "thread-one", "thread-two");
	fflush(stdout);
	child = fork();
	if (!child) {
		spin();
		_exit(0);
	}
	printf("child %d\n", child);
	waitpid(child, NULL, 0);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	part = (argc > 1 ? atof(argv[1]) : 2) / 5;
	rename_and_spin("main", "name-one", "name-two");
	if (pthread_create(&thread, NULL, thread_main, NULL))
		return 2;
	pthread_join(thread, NULL);
	return 0;
}
