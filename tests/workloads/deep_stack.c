// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * deep_stack FILE DEPTH SECONDS [sleep]: a thread whose stack lies on a file, DEPTH calls deep, all but the leaf's page
 * out.
 *
 * The thread maps FILE (created, on a real disk) as its stack, calls down through frames of about 800 bytes, then
 * spins in the leaf. Every 50 us or so it unmaps the pages above the leaf's and drops them from the page cache. No
 * frame up there is touched until the end, so whoever walks the stack without being allowed to fault sees the few
 * frames of the leaf's page, and whoever may fault reads the others from the disk.
 *
 * With `sleep` the leaf sleeps for 10 ms instead, in which nobody brings a page back.
 *
 * The calls go round through frame_0 to frame_7: frame N, counted from the top, is frame_(N % 8). Prints how often
 * the pages were dropped, and in how many of the checks after it the page next to the leaf's was out of the cache.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "syscall.h"

#define STACK_SIZE (1024 * 1024)
/* The C library keeps the thread's own data at the top: left in, the kernel writes there (rseq). */
#define TOP_KEPT (4 * 4096)
#define FRAME_BYTES 720

static int fd;
static char *stack;
static double end;
static int sleeps;
static unsigned long drops, checks, out;

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

/* Write the stack out, unmap it above the leaf's page and drop it from the page cache. */
static void drop_pages(char *from)
{
	size_t length = stack + STACK_SIZE - TOP_KEPT - from;

	if (madvise(from, length, MADV_DONTNEED))
		die("madvise");
	posix_fadvise(fd, from - stack, length, POSIX_FADV_DONTNEED);
	drops++;
}

static void check_one_page(char *page)
{
	unsigned char resident;

	if (mincore(page, 4096, &resident))
		die("mincore");
	checks++;
	out += !(resident & 1);
}

__attribute__((noinline)) static void nap(void)
{
	struct timespec time = { .tv_nsec = 10000000 };

	call_kernel(SYS_nanosleep, (long)&time, 0, 0, 0);
}

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	/* On the stack, so that gcc gives this leaf function a frame and leaf() is not missed. */
	volatile uint64_t kept = x;

	for (int i = 0; i < 20000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x ^ kept;
}

/*
 * Two pages are kept from the leaf's frame up: the page it is on, and the rest of its frame where that
 * crosses into the next one.
 */
__attribute__((noinline)) static uint64_t leaf(uint64_t x)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	char *above = (char *)((here + 16 + 4095) & ~4095ul);

	if (msync(stack, STACK_SIZE, MS_SYNC))
		die("msync");
	for (unsigned long i = 0; now() < end; i++) {
		drop_pages(above);
		if (i % 16 == 0)
			check_one_page(above + 4096);
		if (sleeps)
			nap();
		else
			x = spin(x);
	}
	return x;
}

typedef uint64_t call(unsigned int, uint64_t);
static call frame_0, frame_1, frame_2, frame_3, frame_4, frame_5, frame_6, frame_7;

/* A call with a frame of a size of its own, that works on after the call. */
#define FRAME(n, next)                                                                                                 \
	__attribute__((noinline)) static uint64_t frame_##n(unsigned int depth, uint64_t x)                            \
	{                                                                                                              \
		volatile char room[FRAME_BYTES + 16 * n];                                                              \
                                                                                                                       \
		room[0] = room[sizeof(room) - 1] = (char)x;                                                            \
		x = depth > 1 ? next(depth - 1, x + n) : leaf(x + n);                                                  \
		return x + room[0] + room[sizeof(room) - 1];                                                           \
	}

FRAME(0, frame_1)
FRAME(1, frame_2)
FRAME(2, frame_3)
FRAME(3, frame_4)
FRAME(4, frame_5)
FRAME(5, frame_6)
FRAME(6, frame_7)
FRAME(7, frame_0)

static void *thread_main(void *depth)
{
	return (void *)frame_0((uintptr_t)depth, 1);
}

int main(int argc, char **argv)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (argc != 4 && (argc != 5 || strcmp(argv[4], "sleep"))) {
		fprintf(stderr, "usage: deep_stack FILE DEPTH SECONDS [sleep]\n");
		return 2;
	}
	sleeps = argc == 5;
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, STACK_SIZE))
		die(argv[1]);
	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stack == MAP_FAILED)
		die("mmap");
	memset(stack, 0, STACK_SIZE);
	end = now() + atof(argv[3]);
	if (pthread_attr_init(&attr) || pthread_attr_setstack(&attr, stack, STACK_SIZE) ||
	    pthread_create(&thread, &attr, thread_main, (void *)strtoul(argv[2], NULL, 10)) ||
	    pthread_join(thread, NULL)) {
		fprintf(stderr, "deep_stack: cannot run the thread\n");
		return 2;
	}
	unlink(argv[1]);
	printf("drops %lu checks %lu out %lu\n", drops, checks, out);
	return 0;
}
