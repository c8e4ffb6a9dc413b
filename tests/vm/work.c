// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * work SECONDS: main -> outermost -> middle -> compute (in user space) and read_zeroes (in the kernel), in turns.
 *
 * Static, with frame pointers, and without a library function below middle(): every stack is known. Prints the turns.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

static char buffer[256 * 1024];

/* gcc leaves the frame pointer out of leaf functions, whatever it is told, and their callers go missing: ask for it. */
#define WITH_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned long compute(unsigned long seed)
{
	WITH_FRAME();
	for (int i = 0; i < 2000000; i++)
		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return seed;
}

/* read(2) without the C library's wrapper, which has no frame pointers. */
__attribute__((noinline)) static long read_zeroes(int fd)
{
	long read = 0;

	WITH_FRAME();
	for (int i = 0; i < 64; i++)
		__asm__ volatile("syscall"
				 : "=a"(read)
				 : "a"(SYS_read), "D"(fd), "S"(buffer), "d"(sizeof(buffer))
				 : "rcx", "r11", "memory");
	return read;
}

__attribute__((noinline)) static unsigned long middle(int fd, unsigned long seed)
{
	return compute(seed) + (unsigned long)read_zeroes(fd);
}

__attribute__((noinline)) static unsigned long outermost(int fd, double end)
{
	unsigned long turns = 0, seed = 1;

	while (now() < end) {
		seed = middle(fd, seed);
		turns++;
	}
	return turns + (seed == 0);
}

int main(int argc, char **argv)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	if (argc != 2 || fd < 0) {
		fprintf(stderr, "usage: work SECONDS\n");
		return 2;
	}
	printf("%lu turns\n", outermost(fd, now() + atof(argv[1])));
	return 0;
}
