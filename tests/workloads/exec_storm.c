// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * exec_storm CHAINS EXECS: CHAINS processes at once, each of which executes itself EXECS times in place.
 *
 * Between two execs it reads and spins, so that ticks fall on both sides of an exec and into it. Every third exec is
 * called by a second thread, which takes over the process and its ID, while the first one spins.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[64 * 1024];

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	for (int i = 0; i < 50000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

static void exec_self(int left)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", left);
	execl("/proc/self/exe", "exec_storm", "--chain", text, NULL);
	perror("exec");
	_exit(127);
}

static void *exec_from_thread(void *left)
{
	exec_self((int)(intptr_t)left);
	return NULL;
}

static int run_chain(int left)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	volatile uint64_t x = spin(left);
	pthread_t thread;

	if (zero < 0 || read(zero, buffer, sizeof(buffer)) != sizeof(buffer))
		return 2;
	if (left == 0)
		return 0;
	if (left % 3 == 0 && pthread_create(&thread, NULL, exec_from_thread, (void *)(intptr_t)(left - 1)) == 0)
		for (;;)
			x = spin(x);
	exec_self(left - 1);
	return 127;
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: exec_storm CHAINS EXECS\n");
		return 2;
	}
	if (!strcmp(argv[1], "--chain"))
		return run_chain(atoi(argv[2]));
	for (int i = 0; i < atoi(argv[1]); i++)
		if (fork() == 0)
			exec_self(atoi(argv[2]));
	while (wait(&status) > 0)
		failed += status != 0;
	return failed != 0;
}
