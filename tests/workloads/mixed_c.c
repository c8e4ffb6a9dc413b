// SPDX-License-Identifier: MIT OR Apache-2.0
/* The C part of `mixed`: a matrix product and a string hash, with inlined helpers two levels deep. */
#include "mixed.h"

#define SIDE 24

static uint64_t left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

static inline uint64_t cell(int row, int column)
{
	uint64_t sum = 0;

	for (int k = 0; k < SIDE; k++)
		sum += mix_once(left[row][k]) * right[k][column];
	return sum;
}

__attribute__((noinline)) static void multiply(void)
{
	for (int row = 0; row < SIDE; row++)
		for (int column = 0; column < SIDE; column++)
			product[row][column] = cell(row, column);
}

__attribute__((noinline)) static uint64_t hash_text(const char *text, uint64_t x)
{
	for (int round = 0; round < 200; round++)
		for (const char *c = text; *c; c++)
			x = mix(x ^ (unsigned char)*c, 2);
	return x;
}

uint64_t mixed_c(uint64_t x)
{
	for (int row = 0; row < SIDE; row++) {
		for (int column = 0; column < SIDE; column++) {
			left[row][column] = mix(x + column, 3);
			right[row][column] = x - row;
		}
	}
	multiply();
	return hash_text("stack traces recorded raw", product[1][1] + x);
}
