// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * forks FILE SECONDS: a process that waits while its children, one after the other, spin in work_child() for 2 ms each
 * and end. None of them executes or maps anything.
 *
 * `pid P` goes into FILE when the first has ended.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

__attribute__((noinline)) static uint64_t work_child(double until)
{
	volatile uint64_t x = 1;

	while (now() < until)
		for (int i = 0; i < 2000; i++)
			x = x * 3 + 1;
	return x;
}

static void make_child(void)
{
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (!child) {
		work_child(now() + 0.002);
		_exit(0);
	}
	if (waitpid(child, NULL, 0) < 0)
		die("waitpid");
}

static void tell(const char *path)
{
	char *part;
	FILE *file;

	if (asprintf(&part, "%s.part", path) < 0 || !(file = fopen(part, "w")))
		die(path);
	fprintf(file, "pid %d\n", getpid());
	if (fclose(file) || rename(part, path))
		die(path);
}

int main(int argc, char **argv)
{
	double end;

	if (argc != 3)
		return 2;
	end = now() + atof(argv[2]);
	make_child();
	tell(argv[1]);
	while (now() < end)
		make_child();
	return 0;
}
