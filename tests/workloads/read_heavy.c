// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * read_heavy FILE SECONDS: reads /dev/zero and FILE (created, stays in the page cache) in turns, 256 KiB a call.
 *
 * Nearly all its time passes in the kernel's copy loops, under read_zeroes() or read_file(): samples with both halves.
 * Prints the number of calls.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "syscall.h"

#define SIZE (256 * 1024)

static char buffer[SIZE];

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

__attribute__((noinline)) static unsigned long read_zeroes(int fd)
{
	unsigned long calls = 0;

	while (calls < 16 && call_kernel(SYS_read, fd, (long)buffer, SIZE, 0) == SIZE)
		calls++;
	return calls;
}

__attribute__((noinline)) static unsigned long read_file(int fd)
{
	unsigned long calls = 0;

	while (calls < 16 && call_kernel(SYS_pread64, fd, (long)buffer, SIZE, 0) == SIZE)
		calls++;
	return calls;
}

int main(int argc, char **argv)
{
	int zero, file;
	unsigned long calls = 0;
	double end;

	if (argc != 3) {
		fprintf(stderr, "usage: read_heavy FILE SECONDS\n");
		return 2;
	}
	end = now() + atof(argv[2]);
	zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (zero < 0 || file < 0 || write(file, buffer, SIZE) != SIZE)
		die(argv[1]);
	while (now() < end)
		calls += read_zeroes(zero) + read_file(file);
	unlink(argv[1]);
	printf("%lu\n", calls);
	return 0;
}
