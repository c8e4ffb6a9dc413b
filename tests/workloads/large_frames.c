// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * large_frames SECONDS: stacks whose outermost frames lie behind one of 700 KiB.
 *
 * On the main stack, on a thread's, and on the main one while a signal handler with a stack of its own runs, a function
 * spins for a third of the time below a large frame. First comes a line "text START END": where the kernel put arguments
 * and environment. Then a line for each stack: "NAME TID DISTANCE THREAD", the bytes from the spinning frame, or the one
 * that the signal interrupted, to the one above the large frame, and where the thread's data begin. All numbers are
 * hexadecimal.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRAME (700 << 10)
#define OWN(type) __attribute__((noipa)) static type

static double seconds;
static volatile uint64_t sink;
static uintptr_t interrupted, outermost;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

OWN(uint64_t) spin(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

OWN(void) work(const char *name, uintptr_t inner, uintptr_t outer)
{
	double end = now() + seconds / 3;

	if (!inner)
		inner = (uintptr_t)&end;
	printf("%s %x %" PRIxPTR " %" PRIxPTR "\n", name, gettid(), outer - inner, (uintptr_t)pthread_self());
	fflush(stdout);
	while (now() < end)
		sink = spin(sink);
}

OWN(void) on_signal(int number)
{
	work("signal", interrupted, outermost);
	sink = number;
}

OWN(void) interrupt(uintptr_t outer)
{
	volatile char inner = 0;

	interrupted = (uintptr_t)&inner;
	outermost = outer;
	raise(SIGUSR1);
	sink = inner;
}

OWN(void) large(const char *name, uintptr_t outer)
{
	volatile char block[FRAME];

	block[0] = block[FRAME - 1] = 1;
	if (strcmp(name, "signal") == 0)
		interrupt(outer);
	else
		work(name, 0, outer);
	sink = block[0];
}

OWN(void) below(const char *name)
{
	volatile char outer = 0;

	large(name, (uintptr_t)&outer);
	sink = outer;
}

static void *thread_main(void *unused)
{
	below("thread");
	return unused;
}

int main(int argc, char **argv)
{
	static char stack[128 << 10];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	char **last = environ;
	pthread_t thread;

	if (argc != 2 || !*last) {
		fprintf(stderr, "usage: large_frames SECONDS, with an environment\n");
		return 2;
	}
	while (last[1])
		last++;
	printf("text %" PRIxPTR " %" PRIxPTR "\n", (uintptr_t)argv[0], (uintptr_t)(*last + strlen(*last)));
	seconds = atof(argv[1]);
	below("main");
	if (pthread_create(&thread, NULL, thread_main, NULL) || pthread_join(thread, NULL))
		return 2;
	if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR1, &action, NULL))
		return 2;
	below("signal");
	return 0;
}
