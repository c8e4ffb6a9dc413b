// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * hits N [SECONDS]: makes each of several things happen a known number of times, and prints how often.
 *
 * N calls of probed(), by N calls of caller(); N times the marker hits:request, and hits:guarded when its semaphore
 * says that somebody looks; N system calls getppid; N calls of a library's function through the PLT, alternately the
 * new version and, through its own address, the old one; 10 forks; a recursion 20 deep, N / 10 times; page faults and
 * context switches as the kernel counted them for this process. With SECONDS: works so long in slow(), below
 * slow_caller(), then in blocked system calls below it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hits_lib.h"
#include "syscall.h"

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#define PAGE 4096
#define PAGES 5000
#define FORKS 10
#define DEPTH 20
#define SLEEPS 200

/* The probes' header wants a semaphore for each marker. */
__extension__ unsigned short hits_request_semaphore __attribute__((unused, section(".probes")));
__extension__ unsigned short hits_guarded_semaphore __attribute__((unused, section(".probes")));

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

__attribute__((noinline)) unsigned long probed(unsigned long x)
{
	return x * 6364136223846793005ul + 1442695040888963407ul;
}

/* Work behind the call, in all of these: it cannot become a jump. */
__attribute__((noinline)) unsigned long caller(unsigned long x)
{
	x = probed(x);
	return x ^ (x >> 7);
}

__attribute__((noinline)) unsigned long recurse(unsigned int depth, unsigned long x)
{
	if (depth > 1)
		x = recurse(depth - 1, x + depth);
	return x ^ (x >> 7);
}

/* Busy, then blocked: ticks in user code, and in the kernel on its behalf. */
__attribute__((noinline)) unsigned long slow(double seconds, unsigned long x)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	double end = now() + seconds;

	while (now() < end) {
		for (int i = 0; i < 50; i++)
			x = probed(x);
		/* Long enough to be met, however quick the machine is. */
		for (int i = 0; i < 50000; i++)
			x = x * 6364136223846793005ul + 1442695040888963407ul;
		call_kernel(SYS_nanosleep, (long)&pause, 0, 0, 0);
	}
	return x;
}

__attribute__((noinline)) unsigned long slow_caller(double seconds, unsigned long x)
{
	x = slow(seconds, x);
	return x ^ (x >> 7);
}

__attribute__((noinline)) static unsigned long touch_pages(void)
{
	volatile char *area =
		mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED || madvise((void *)area, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE))
		exit(1);
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE] = 1;
	return area[0];
}

__attribute__((noinline)) static void sleep_often(void)
{
	struct timespec pause = { .tv_nsec = 1000 };

	for (int i = 0; i < SLEEPS; i++)
		call_kernel(SYS_nanosleep, (long)&pause, 0, 0, 0);
}

__attribute__((noinline)) static void fork_often(void)
{
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
	unsigned long (*old)(unsigned long) = dlvsym(RTLD_DEFAULT, "versioned", "HITS_1");
	unsigned long guarded = 0, x = 1;
	struct rusage usage;

	if (!old)
		return 1;
	for (unsigned long i = 0; i < n; i++) {
		x = caller(x);
		DTRACE_PROBE1(hits, request, i);
		if (hits_guarded_semaphore) {
			DTRACE_PROBE1(hits, guarded, i);
			guarded++;
		}
		call_kernel(SYS_getppid, 0, 0, 0, 0);
		x += i % 2 ? old(x) : versioned(x);
	}
	for (unsigned long i = 0; i < n / 10; i++)
		x = recurse(DEPTH, x);
	fork_often();
	sleep_often();
	x += touch_pages();
	if (argc > 2)
		x = slow_caller(atof(argv[2]), x);
	getrusage(RUSAGE_SELF, &usage);
	printf("calls %lu guarded %lu versioned %lu recursions %lu forks %d touched %d faults %ld switches %ld\n", n,
	       guarded, n / 2, n / 10 * DEPTH, FORKS, PAGES, usage.ru_minflt + usage.ru_majflt,
	       usage.ru_nvcsw + usage.ru_nivcsw);
	return x == 0; /* never: keeps x alive */
}
