// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * unwound_c SECONDS: stacks that are hard to unwind without frame pointers, in turns, by several threads.
 *
 * Recursion of random depth, callbacks through libc's qsort, frames of a changing and of a large size, frames with an
 * alignment of their own, deep stacks, signal handlers on the same and on another stack, contexts that switch stacks,
 * functions that do not return, stubs of the linkage table, the vDSO. SIGPROF comes while it runs, for a debugger; it is
 * ignored otherwise.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#define THREADS 3
#define DEEP 700
#define COROUTINE_STACK (64 << 10)
#define OWN(type) __attribute__((noinline)) static type

static volatile uint64_t sink;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

OWN(uint64_t) leaf(uint64_t x)
{
	for (int i = 0; i < 300; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

OWN(uint64_t) recurse(uint64_t x, int depth)
{
	if (depth == 0)
		return leaf(x);
	return recurse(x + depth, depth - 1) ^ leaf(x >> 3);
}

OWN(uint64_t) deep(uint64_t x, int depth)
{
	if (depth == 0)
		return leaf(x) + leaf(x + 1) + leaf(x + 2);
	return deep(x + 1, depth - 1) + depth;
}

OWN(uint64_t) of_any_size(uint64_t x, int depth)
{
	size_t size = 16 + x % 500;
	unsigned char *bytes = alloca(size);

	memset(bytes, (int)x, size);
	if (depth > 0)
		x += of_any_size(leaf(x), depth - 1);
	return x + bytes[size / 2];
}

OWN(uint64_t) large(uint64_t x)
{
	unsigned char bytes[20000];

	memset(bytes, (int)x, sizeof(bytes));
	sink += bytes[x % sizeof(bytes)];
	return leaf(x) + bytes[(x + 7) % sizeof(bytes)];
}

/* The stack pointer is rounded down, so that the frame is found through a saved pointer. */
OWN(uint64_t) aligned(uint64_t x, int depth)
{
	_Alignas(64) uint64_t words[8];
	unsigned char *bytes = alloca(16 + x % 100);

	for (int i = 0; i < 8; i++)
		words[i] = x + i;
	bytes[0] = (unsigned char)x;
	sink += words[x % 8] + bytes[0];
	return depth > 0 ? aligned(leaf(x), depth - 1) + words[1] : leaf(words[2]);
}

static int by_leaf(const void *a, const void *b)
{
	uint64_t x = leaf(*(const uint64_t *)a), y = leaf(*(const uint64_t *)b);

	return (x > y) - (x < y);
}

OWN(uint64_t) sorted(uint64_t x)
{
	uint64_t words[24];

	for (int i = 0; i < 24; i++)
		words[i] = x = x * 2862933555777941757ull + 3037000493ull;
	qsort(words, 24, sizeof(*words), by_leaf);
	return words[3];
}

OWN(uint64_t) printed(uint64_t x)
{
	char text[64];

	snprintf(text, sizeof(text), "%f %lu", (double)x / 3, (unsigned long)x);
	return strlen(text) + strtoul(text, NULL, 10);
}

__attribute__((noinline, noreturn)) static void leave(jmp_buf where, uint64_t x)
{
	sink += leaf(x) + leaf(x + 1);
	longjmp(where, 1);
}

/* The call is the last instruction: the return address is behind the function. */
__attribute__((noinline, noreturn)) static void never_returns(jmp_buf where, uint64_t x)
{
	leave(where, x + 1);
}

OWN(uint64_t) left(uint64_t x)
{
	jmp_buf where;

	if (setjmp(where) == 0)
		never_returns(where, x);
	return x + 1;
}

static void handle(int number)
{
	sink += recurse((uint64_t)number, 3);
}

OWN(uint64_t) signalled(uint64_t x)
{
	raise(SIGUSR1);
	raise(SIGUSR2);
	return leaf(x);
}

static __thread ucontext_t outside, inside;

static void coroutine(void)
{
	for (;;) {
		sink += recurse(sink, 4);
		swapcontext(&inside, &outside);
	}
}

OWN(uint64_t) switched(uint64_t x)
{
	swapcontext(&outside, &inside);
	return leaf(x);
}

OWN(uint64_t) clocks(uint64_t x)
{
	struct timeval tv;

	for (int i = 0; i < 8; i++) {
		x += (uint64_t)(now() * 1e9);
		gettimeofday(&tv, NULL);
	}
	return x + (uint64_t)tv.tv_usec;
}

OWN(uint64_t) round_of_all(uint64_t x)
{
	x += recurse(x, (int)(x >> 40) % 40);
	x += sorted(x);
	x += of_any_size(x, 5);
	x += large(x);
	x += aligned(x, 4);
	x += deep(x, DEEP);
	x += printed(x);
	x += left(x);
	x += signalled(x);
	x += switched(x);
	return x + clocks(x);
}

OWN(void) prepare(void)
{
	stack_t other = { .ss_sp = malloc(SIGSTKSZ * 4), .ss_size = SIGSTKSZ * 4 };

	sigaltstack(&other, NULL);
	getcontext(&inside);
	inside.uc_stack.ss_sp = malloc(COROUTINE_STACK);
	inside.uc_stack.ss_size = COROUTINE_STACK;
	inside.uc_link = NULL;
	makecontext(&inside, coroutine, 0);
}

static double end_time;

static void *work(void *seed)
{
	uint64_t x = (uint64_t)(uintptr_t)seed;

	prepare();
	while (now() < end_time)
		x = round_of_all(x);
	sink += x;
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	struct itimerval tick = { { 0, 1000 }, { 0, 1000 } };
	pthread_t threads[THREADS];

	end_time = now() + (argc > 1 ? atof(argv[1]) : 1);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
	signal(SIGPROF, SIG_IGN);
	setitimer(ITIMER_PROF, &tick, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	work((void *)77);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
