// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * evict_header SECONDS: runs while the page with the ELF header and build ID of its files is out of memory.
 *
 * The program and its library libevict.so spin in turns. Between two turns of about 50 us each, this unmaps the first
 * page of both files and drops it from the page cache. Nothing reads that page for the program to run, so at nearly
 * every tick a build ID cannot be had without reading the disk. That needs files that nobody else maps.
 *
 * Prints how often the pages were dropped, and how many of the checks after it found both out of the cache.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t evict_lib_spin(uint64_t x);

/* A file and where its first page is mapped. */
struct module {
	char *header;
	int fd;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static struct module open_module(const char *path, void *base)
{
	struct module module = {
		.header = base,
		.fd = open(path, O_RDONLY | O_CLOEXEC),
	};

	if (module.fd < 0) {
		perror(path);
		exit(2);
	}
	fsync(module.fd); /* only clean pages can be dropped */
	return module;
}

static void drop_header(const struct module *module)
{
	if (madvise(module->header, 4096, MADV_DONTNEED)) {
		perror("madvise");
		exit(2);
	}
	posix_fadvise(module->fd, 0, 4096, POSIX_FADV_DONTNEED);
}

static int header_is_out(const struct module *module)
{
	unsigned char resident = 1;

	return mincore(module->header, 4096, &resident) == 0 && !(resident & 1);
}

__attribute__((noinline)) static uint64_t spin(uint64_t x)
{
	for (int i = 0; i < 20000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}

__attribute__((noinline)) static uint64_t spin_in_both(uint64_t x, unsigned long turn)
{
	x = turn % 2 ? evict_lib_spin(x) : spin(x);
	return x + turn;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 1);
	unsigned long drops = 0, out = 0;
	extern const char __executable_start[];
	struct module program = open_module("/proc/self/exe", (void *)__executable_start);
	struct module library;
	Dl_info info;
	uint64_t x = 1;

	if (!dladdr((void *)evict_lib_spin, &info)) {
		fprintf(stderr, "evict_header: no library\n");
		return 2;
	}
	library = open_module(info.dli_fname, info.dli_fbase);

	while (now() < end) {
		drop_header(&program);
		drop_header(&library);
		out += header_is_out(&program) && header_is_out(&library);
		drops++;
		x = spin_in_both(x, drops);
	}
	printf("drops %lu out %lu\n", drops, out);
	return x == 0; /* never: keeps x alive */
}
