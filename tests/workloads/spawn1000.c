// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * spawn1000 DIR [COUNT]: COUNT (1000) processes that live under 5 ms each, two at a time.
 *
 * Each one spins for 2 ms of CPU time in spawned_work() and ends. Even ones run this program's own file; odd ones run a
 * copy of it made in DIR, which they unlink as the first thing they do. Nobody can open those files afterwards.
 *
 * Prints how many ended well, and how many lived longer than 5 ms (a busy machine does that, not this program).
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

#define AT_ONCE 2
#define LIFE_NS 5000000
#define WORK_NS 2000000

struct child {
	pid_t pid;
	uint64_t start_ns;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

__attribute__((noinline)) static uint64_t spawned_spin(uint64_t x)
{
	for (int i = 0; i < 5000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

__attribute__((noinline)) static uint64_t spawned_work(uint64_t x)
{
	while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < WORK_NS)
		x = spawned_spin(x) + 1;
	return x;
}

static void copy_self(const char *to)
{
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	struct stat stat;

	if (in < 0 || out < 0 || fstat(in, &stat) || sendfile(out, in, NULL, stat.st_size) != stat.st_size)
		die(to);
	close(in);
	close(out);
}

static struct child spawn(const char *dir, int number)
{
	struct child child = { .start_ns = clock_ns(CLOCK_MONOTONIC) };
	char path[4096] = "/proc/self/exe";
	int copied = number % 2;

	if (copied) {
		snprintf(path, sizeof(path), "%s/copy-%d", dir, number);
		copy_self(path);
	}
	child.pid = vfork();
	if (child.pid == 0) {
		execl(path, copied ? path : "spawned", "--child", copied ? path : NULL, NULL);
		_exit(127);
	}
	if (child.pid < 0)
		die("vfork");
	return child;
}

int main(int argc, char **argv)
{
	struct child running[AT_ONCE] = { 0 };
	int count = argc > 2 ? atoi(argv[2]) : 1000;
	int started = 0, ended = 0, well = 0, late = 0;

	if (argc > 1 && !strcmp(argv[1], "--child")) {
		if (argc > 2 && unlink(argv[2]))
			die(argv[2]);
		return spawned_work(1) == 0;
	}
	if (argc < 2) {
		fprintf(stderr, "usage: spawn1000 DIR [COUNT]\n");
		return 2;
	}
	while (ended < count) {
		int status, slot;
		pid_t pid;

		for (slot = 0; slot < AT_ONCE; slot++)
			if (!running[slot].pid && started < count)
				running[slot] = spawn(argv[1], started++);
		pid = wait(&status);
		if (pid < 0)
			die("wait");
		for (slot = 0; slot < AT_ONCE; slot++) {
			if (running[slot].pid != pid)
				continue;
			well += WIFEXITED(status) && WEXITSTATUS(status) == 0;
			late += clock_ns(CLOCK_MONOTONIC) - running[slot].start_ns > LIFE_NS;
			running[slot].pid = 0;
			ended++;
		}
	}
	printf("ended %d late %d\n", well, late);
	return well != count;
}
