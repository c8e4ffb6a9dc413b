// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * canary SECONDS FILE SECRET: keeps secrets wherever a program can have some (its arguments, its environment, a file that
 * it reads, heap and stack), and computes beneath a stack that is full of them. Prints how often it came around.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LENGTH 64

static char *heap;
static volatile unsigned long sum;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, 8);
}

/* Secrets between all frames, and the C library, which has no frame pointers, at the end of them. */
__attribute__((noinline)) static void descend(int depth, const char *secret)
{
	char copy[8][LENGTH];
	int i;

	for (i = 0; i < 8; i++)
		memcpy(copy[i], secret, LENGTH);
	if (depth > 0)
		descend(depth - 1, secret);
	else
		qsort(copy, 8 * LENGTH / 8, 8, compare);
	for (i = 0; i < 8; i++)
		sum += copy[i][i] + heap[i];
}

int main(int argc, char **argv)
{
	char secret[LENGTH] = "";
	unsigned long rounds = 0;
	double end;
	FILE *file;

	if (argc != 4)
		return 2;
	file = fopen(argv[2], "r");
	heap = calloc(1, 1 << 16);
	if (!file || !heap || !fread(secret, 1, LENGTH, file)) {
		perror(argv[2]);
		return 1;
	}
	memcpy(heap, secret, LENGTH);
	for (end = now() + atof(argv[1]); now() < end; rounds++)
		descend(20, rounds % 2 ? secret : argv[3]);
	printf("rounds %lu\n", rounds);
	return 0;
}
