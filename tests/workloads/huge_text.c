// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * huge_text SECONDS part|whole: copies code to memory of its own and maps it in the place of the file's, as programs do
 * that want their code on huge pages, then works there. part: the page of the function that works, mapped over;
 * whole: all of the code, moved there.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE 4096

static volatile unsigned long turns;

__attribute__((noinline, section("hot_code"), aligned(PAGE))) void work_in_copy(void)
{
	for (unsigned long turn = 0; turn < 100000; turn++)
		turns += turn;
}

/* Nothing else is on the last page. */
__attribute__((section("hot_code"), aligned(PAGE), used)) void behind_copy(void)
{
}

static void or_die(int is_bad, const char *what)
{
	if (is_bad) {
		perror(what);
		exit(1);
	}
}

static void copy_part(void)
{
	char *code = (char *)(uintptr_t)work_in_copy;
	size_t length = (size_t)((char *)(uintptr_t)behind_copy - code);
	char *copy = malloc(length);
	void *mapped;

	memcpy(copy, code, length);
	mapped = mmap(code, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	or_die(mapped == MAP_FAILED, "mmap");
	memcpy(code, copy, length);
	or_die(mprotect(code, length, PROT_READ | PROT_EXEC), "mprotect");
}

/* The mapping that holds this very function. */
static void own_code(char **start, char **end)
{
	uintptr_t here = (uintptr_t)own_code, from, to;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	or_die(!maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= here && here < to) {
			*start = (char *)from;
			*end = (char *)to;
		}
	fclose(maps);
}

static void copy_whole(void)
{
	char *start = NULL, *end = NULL, *copy;
	size_t length;

	own_code(&start, &end);
	length = (size_t)(end - start);
	copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	or_die(copy == MAP_FAILED, "mmap");
	memcpy(copy, start, length);
	or_die(mprotect(copy, length, PROT_READ | PROT_EXEC), "mprotect");
	or_die(mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED, "mremap");
}

int main(int argc, char **argv)
{
	struct timespec now;
	double end;

	if (argc != 3)
		return 2;
	if (strcmp(argv[2], "part") == 0)
		copy_part();
	else
		copy_whole();
	puts("copied");
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (end = now.tv_sec + atof(argv[1]); now.tv_sec < end; clock_gettime(CLOCK_MONOTONIC, &now))
		work_in_copy();
	return 0;
}
