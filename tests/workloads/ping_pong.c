// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * ping_pong CPU ROUNDS: two processes on one CPU wake each other ROUNDS times, through two pipes.
 *
 * Each round is two switches: each of the two blocks until the other has written, or is preempted by the one it woke.
 * Prints the switches that the kernel counted for both, how many of them were because one blocked, and how much CPU time
 * they took in nanoseconds: who else runs on the machine has little to do with that.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(2);
}

__attribute__((noinline)) static void pass(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		die("pass");
}

static uint64_t nanoseconds(struct timeval time)
{
	return time.tv_sec * 1000000000ull + time.tv_usec * 1000ull;
}

static void tell(void)
{
	struct rusage own, child;
	long blocked;

	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &child);
	blocked = own.ru_nvcsw + child.ru_nvcsw;
	printf("switches %ld blocked %ld ns %lu\n", blocked + own.ru_nivcsw + child.ru_nivcsw, blocked,
	       nanoseconds(own.ru_utime) + nanoseconds(own.ru_stime) + nanoseconds(child.ru_utime) +
		       nanoseconds(child.ru_stime));
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	cpu_set_t cpus;
	pid_t child;
	long rounds;

	if (argc != 3) {
		fprintf(stderr, "usage: ping_pong CPU ROUNDS\n");
		return 2;
	}
	rounds = atol(argv[2]);
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || pipe(there) || pipe(back))
		die("setup");
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		for (long i = 0; i < rounds; i++)
			pass(there[0], back[1]);
		_exit(0);
	}
	if (write(there[1], "", 1) != 1)
		die("write");
	for (long i = 0; i < rounds - 1; i++)
		pass(back[0], there[1]);
	waitpid(child, NULL, 0);
	tell();
	return 0;
}
