// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * waits known: waits of known length, three kinds at once, each in a function and a thread of its own.
 * waits FILE: threads that still wait when asked to.
 *
 * `known` sleeps five times for 100 ms in wait_nanosleep(), in wait_futex() and in wait_pipe(), five times for 10 ms in
 * wait_short(), and prints how long each kind took in all, in nanoseconds, as its own clock saw it.
 *
 * With FILE one thread waits in wait_before() from the start and for ever, another in wait_ended() until FILE is there,
 * and the main thread begins to wait in wait_later() only then, for ever, too. wait_busy() spins all the time, and is
 * not blocked by that.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "syscall.h"

#define TIMES 5
#define LONG_NS 100000000
#define SHORT_NS 10000000

static uint64_t nanosleep_ns, futex_ns, pipe_ns, short_ns;
static int ends[2];

static uint64_t now(void)
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

/*
 * Not as tail calls, which would leave no frame: each has something left to do. And not the same, or the compiler would
 * make one function of them.
 */
#define WAIT(name) __attribute__((noinline)) static long name

WAIT(wait_nanosleep)(void)
{
	struct timespec time = { .tv_nsec = LONG_NS };

	return call_kernel(SYS_nanosleep, (long)&time, 0, 0, 0) + 1;
}

WAIT(wait_short)(void)
{
	struct timespec time = { .tv_nsec = SHORT_NS };

	return call_kernel(SYS_nanosleep, (long)&time, 0, 0, 0) + 2;
}

WAIT(wait_futex)(void)
{
	struct timespec time = { .tv_nsec = LONG_NS };
	uint32_t word = 0;

	return call_kernel(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, (long)&time) + 7;
}

WAIT(wait_pipe)(void)
{
	char byte;

	return call_kernel(SYS_read, ends[0], (long)&byte, 1, 0) + 3;
}

WAIT(wait_before)(int *pipe)
{
	char byte;

	return call_kernel(SYS_read, pipe[0], (long)&byte, 1, 0) + 4;
}

WAIT(wait_ended)(int *pipe)
{
	char byte;

	return call_kernel(SYS_read, pipe[0], (long)&byte, 1, 0) + 5;
}

WAIT(wait_later)(int *pipe)
{
	char byte;

	return call_kernel(SYS_read, pipe[0], (long)&byte, 1, 0) + 6;
}

WAIT(wait_busy)(void)
{
	volatile uint64_t x = 1;

	for (;;)
		x = x * 3 + 1;
	return x;
}

static void repeat(long (*wait)(void), uint64_t *sum)
{
	for (int i = 0; i < TIMES; i++) {
		uint64_t start = now();

		wait();
		*sum += now() - start;
	}
}

static void *in_futex(void *unused)
{
	(void)unused;
	repeat(wait_futex, &futex_ns);
	return NULL;
}

static void *in_pipe(void *unused)
{
	(void)unused;
	repeat(wait_pipe, &pipe_ns);
	return NULL;
}

static void *write_pipe(void *unused)
{
	(void)unused;
	for (int i = 0; i < TIMES; i++) {
		usleep(LONG_NS / 1000);
		if (write(ends[1], "", 1) != 1)
			die("write");
	}
	return NULL;
}

static void start(pthread_t *thread, void *(*what)(void *), void *argument)
{
	if (pthread_create(thread, NULL, what, argument))
		die("pthread_create");
}

static int known(void)
{
	pthread_t threads[3];

	start(&threads[0], in_futex, NULL);
	start(&threads[1], in_pipe, NULL);
	start(&threads[2], write_pipe, NULL);
	repeat(wait_nanosleep, &nanosleep_ns);
	repeat(wait_short, &short_ns);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("wait_nanosleep %lu wait_futex %lu wait_pipe %lu wait_short %lu\n", nanosleep_ns, futex_ns, pipe_ns,
	       short_ns);
	return 0;
}

static void *before(void *pipe)
{
	wait_before(pipe);
	return NULL;
}

static void *ended(void *pipe)
{
	wait_ended(pipe);
	return NULL;
}

static void *busy(void *unused)
{
	(void)unused;
	wait_busy();
	return NULL;
}

static int still_waiting(const char *file)
{
	int forever[2], until[2];
	pthread_t thread;

	if (pipe(forever) || pipe(until))
		die("pipe");
	start(&thread, before, forever);
	start(&thread, ended, until);
	start(&thread, busy, NULL);
	while (access(file, F_OK))
		usleep(10000);
	if (write(until[1], "", 1) != 1)
		die("write");
	wait_later(forever);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: waits known|FILE\n");
		return 2;
	}
	if (strcmp(argv[1], "known"))
		return still_waiting(argv[1]);
	if (pipe(ends))
		die("pipe");
	return known();
}
