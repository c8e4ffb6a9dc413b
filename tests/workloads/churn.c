// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * churn DIR SECONDS [RATE]: RATE (1300) programs a second, each executed in a process of its own that soon ends.
 *
 * There are CHURN_PROGRAMS of them (churn_program.c), each with a build ID of its own, all with code mapped at the same
 * addresses: a sample whose leaf lies in churn_work() of program N has an address that only N runs, whatever else is
 * said of it. They lie beside this file. Every second one is run as DIR/churned, a file that each time is replaced by
 * another one of the same name.
 *
 * Prints how many ended well, and how many a second.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "churn.h"

#define AT_ONCE 4

static char programs[CHURN_PROGRAMS][4096];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void find_programs(void)
{
	char own[4000];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (length <= 0)
		die("/proc/self/exe");
	own[length] = 0;
	for (int i = 0; i < CHURN_PROGRAMS; i++)
		snprintf(programs[i], sizeof(programs[i]), "%s-%d", own, i);
}

/* Put a copy of `from` in the place of `to`, as an upgrade does. */
static void replace(const char *from, const char *to, const char *new)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	struct stat stat;

	if (in < 0 || out < 0 || fstat(in, &stat) || sendfile(out, in, NULL, stat.st_size) != stat.st_size)
		die(new);
	close(in);
	close(out);
	if (rename(new, to))
		die(to);
}

static void run_one(const char *path)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execl(path, path, NULL);
		_exit(127);
	}
	if (pid < 0)
		die("vfork");
}

static int reap(int options)
{
	int status;
	pid_t pid = waitpid(-1, &status, options);

	if (pid <= 0)
		return 0;
	if (status)
		exit(1);
	return 1;
}

int main(int argc, char **argv)
{
	uint64_t start = now_ns(), rate = argc > 3 ? atoi(argv[3]) : 1300, started = 0, ended = 0, end;
	char place[4096], new[4096];

	if (argc < 3 || !rate) {
		fprintf(stderr, "usage: churn DIR SECONDS [RATE]\n");
		return 2;
	}
	find_programs();
	snprintf(place, sizeof(place), "%s/churned", argv[1]);
	snprintf(new, sizeof(new), "%s/churned.new", argv[1]);
	end = start + (uint64_t)(atof(argv[2]) * 1e9);
	while (now_ns() < end) {
		uint64_t due = start + started * 1000000000ull / rate, now = now_ns();
		const char *program = programs[started / 2 % CHURN_PROGRAMS];

		if (due > now) {
			struct timespec pause = { .tv_nsec = due - now };

			nanosleep(&pause, NULL);
		}
		if (started % 2) {
			replace(program, place, new);
			program = place;
		}
		run_one(program);
		started++;
		while (ended < started && reap(started - ended < AT_ONCE ? WNOHANG : 0))
			ended++;
	}
	while (reap(0))
		;
	unlink(place);
	printf("ended %llu rate %llu\n", (unsigned long long)started,
	       (unsigned long long)(started * 1000000000ull / (now_ns() - start)));
	return 0;
}
