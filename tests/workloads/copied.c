// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * copied SECONDS: known bytes on stacks of each sort.
 *
 * On the main stack, on a thread's, on an alternate signal stack, on a coroutine's (swapcontext), and on a thread's below
 * more than fits a small copy, a function fills a block of its frame, prints where it is and spins. While it spins the
 * block stays as it is: word N is SEED + N * STEP. A line for each: "NAME TID ADDRESS WORDS SEED STEP", all but the name
 * and the numbers of words in hexadecimal.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define WORDS 512
#define DEEP_WORDS (25 * 1024) /* 200 KiB */
#define STEP 0x9e3779b97f4a7c15ull

static double seconds;
static ucontext_t main_context, coroutine_context;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

static void fill(const char *name, volatile uint64_t *block, unsigned int words, uint64_t seed)
{
	for (unsigned int i = 0; i < words; i++)
		block[i] = seed + i * STEP;
	printf("%s %x %" PRIxPTR " %u %" PRIx64 " %llx\n", name, gettid(), (uintptr_t)block, words, seed, STEP);
	fflush(stdout);
}

__attribute__((noinline)) static uint64_t work(const char *name, uint64_t seed)
{
	volatile uint64_t block[WORDS];
	double end = now() + seconds;
	uint64_t x = seed;

	fill(name, block, WORDS, seed);
	while (now() < end)
		x = spin(x);
	return x + block[x % WORDS];
}

__attribute__((noinline)) static uint64_t work_below(uint64_t seed)
{
	volatile uint64_t block[DEEP_WORDS];
	double end = now() + seconds;
	uint64_t x = seed;

	fill("deep", block, DEEP_WORDS, seed);
	while (now() < end)
		x = spin(x);
	return x + block[x % DEEP_WORDS];
}

static void *thread_main(void *unused)
{
	(void)unused;
	return (void *)(uintptr_t)work("thread", 0x2000000000000002);
}

static void *deep_main(void *unused)
{
	(void)unused;
	return (void *)(uintptr_t)work_below(0x5000000000000005);
}

static void on_signal(int number)
{
	(void)number;
	work("signal", 0x3000000000000003);
}

static void coroutine(void)
{
	work("coroutine", 0x4000000000000004);
	swapcontext(&coroutine_context, &main_context);
}

static void *new_stack(size_t size)
{
	void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED)
		exit(2);
	return stack;
}

static void run(void *(*entry)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, entry, NULL) || pthread_join(thread, NULL))
		exit(2);
}

int main(int argc, char **argv)
{
	stack_t alternate = { .ss_sp = new_stack(128 << 10), .ss_size = 128 << 10 };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };

	if (argc != 2) {
		fprintf(stderr, "usage: copied SECONDS\n");
		return 2;
	}
	seconds = atof(argv[1]);
	work("main", 0x1000000000000001);
	run(thread_main);
	if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR1, &action, NULL) || raise(SIGUSR1))
		return 2;
	getcontext(&coroutine_context);
	coroutine_context.uc_stack.ss_sp = new_stack(128 << 10);
	coroutine_context.uc_stack.ss_size = 128 << 10;
	makecontext(&coroutine_context, coroutine, 0);
	swapcontext(&main_context, &coroutine_context);
	run(deep_main);
	return 0;
}
