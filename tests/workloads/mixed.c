// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mixed SECONDS: work in C, C++ and Rust in turns, optimised and with inlining, and reads from the kernel.
 *
 * What a recorder meets in the field: templates, closures, exceptions, static functions, inlined ones two levels deep,
 * and a good part of the time inside read(2).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "mixed.h"
#include "syscall.h"

static char buffer[256 * 1024];

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) static uint64_t read_blocks(int fd, int count)
{
	uint64_t sum = 0;

	for (int i = 0; i < count; i++) {
		long got = call_kernel(SYS_read, fd, (long)buffer, sizeof(buffer), 0);

		if (got < 0)
			break;
		sum += got;
	}
	return sum;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 1);
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	unsigned long turns = 0;
	uint64_t x = 1;

	if (zero < 0) {
		perror("/dev/zero");
		return 2;
	}
	for (; now() < end; turns++) {
		x = mixed_c(x);
		x = mixed_cpp(x);
		x = mixed_rust(x);
		x += read_blocks(zero, 8);
	}
	printf("%lu\n", turns);
	return x == 0; /* never: keeps x alive */
}
