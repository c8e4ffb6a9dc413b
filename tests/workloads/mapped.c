// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mapped SECONDS: maps code early and late, and says what is mapped: a line "code PID LINE" for each of /proc/PID/maps that
 * is executable. Works alone, then with a library of its own choice and memory without a file, each for SECONDS; then
 * executes short programs one after the other that print the same of themselves and work for some milliseconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILDREN 20

static volatile uint64_t result;

static void or_die(int is_bad, const char *what)
{
	if (is_bad) {
		perror(what);
		exit(1);
	}
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static void work(double seconds)
{
	double end = now() + seconds;

	while (now() < end) {
		for (int i = 0; i < 10000; i++)
			result = result * 6364136223846793005ull + 1442695040888963407ull;
	}
}

static void tell(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[1024], rights[8];

	or_die(!maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%*s %7s", rights) == 1 && strchr(rights, 'x'))
			printf("code %d %s", getpid(), line);
	}
	fclose(maps);
	fflush(stdout);
}

static void make_child(char *program)
{
	int status;
	pid_t child = fork();

	or_die(child < 0, "fork");
	if (!child) {
		execl(program, program, "short", NULL);
		or_die(1, program);
	}
	or_die(waitpid(child, &status, 0) != child || status, "waitpid");
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.1;

	if (argc > 1 && !strcmp(argv[1], "short")) {
		tell();
		work(0.005);
		return 0;
	}
	work(seconds);
	or_die(!dlopen("libm.so.6", RTLD_NOW), "dlopen");
	or_die(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "mmap");
	tell();
	work(seconds);
	for (int i = 0; i < CHILDREN; i++)
		make_child(argv[0]);
	return 0;
}
