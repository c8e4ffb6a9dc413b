// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * blocked THREADS SECONDS die|end: threads that work in the kernel and then sleep there, within one system call.
 *
 * A third of the threads polls 1,000 pipes that stay empty, a third receives from a socket that holds half of what they
 * ask for, a third works in user space between futex waits. A tick that hits the work before the sleep leaves a stack
 * whose user half cannot be taken until the call returns. With `die` the process kills itself with SIGKILL when the
 * time is over, while nearly all threads sleep; with `end` it exits.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PIPES 1000
#define SLEEP_MS 20
#define HALF (96 * 1024)

static struct pollfd pipes[PIPES];

static void die(const char *what)
{
	perror(what);
	exit(2);
}

__attribute__((noinline)) static void sleep_in_poll(void)
{
	poll(pipes, PIPES, SLEEP_MS);
}

__attribute__((noinline)) static void sleep_in_receive(int *ends, char *buffer)
{
	if (send(ends[1], buffer, HALF, MSG_DONTWAIT) < 0)
		return;
	/* Copies what is there, then waits for the rest until SO_RCVTIMEO is over. */
	recv(ends[0], buffer, 2 * HALF, MSG_WAITALL);
}

__attribute__((noinline)) static void sleep_in_futex(void)
{
	struct timespec timeout = { .tv_nsec = SLEEP_MS * 1000000 };
	uint32_t word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0);
}

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

static void *thread_main(void *number)
{
	struct timeval timeout = { .tv_usec = SLEEP_MS * 1000 };
	char *buffer = calloc(2, HALF);
	volatile uint64_t x = 1;
	int ends[2];

	if (!buffer || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ||
	    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)))
		die("socketpair");
	for (;;) {
		switch ((uintptr_t)number % 3) {
		case 0:
			sleep_in_poll();
			break;
		case 1:
			sleep_in_receive(ends, buffer);
			break;
		default:
			x = spin(x);
			sleep_in_futex();
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec life = { 0 };
	double seconds;

	if (argc != 4) {
		fprintf(stderr, "usage: blocked THREADS SECONDS die|end\n");
		return 2;
	}
	for (int i = 0; i < PIPES; i += 2) {
		int ends[2];

		if (pipe(ends))
			die("pipe");
		pipes[i] = pipes[i + 1] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	}
	for (uintptr_t i = 0; i < strtoul(argv[1], NULL, 10); i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, thread_main, (void *)i))
			die("pthread_create");
	}
	seconds = atof(argv[2]);
	life.tv_sec = (time_t)seconds;
	life.tv_nsec = (long)((seconds - (double)life.tv_sec) * 1e9);
	nanosleep(&life, NULL);
	if (!strcmp(argv[3], "die"))
		kill(getpid(), SIGKILL);
	return 0;
}
