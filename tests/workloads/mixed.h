/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The parts of the workload `mixed`, one per language, and the arithmetic that all of them inline. */
#ifndef MIXED_H
#define MIXED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t mixed_c(uint64_t x);
uint64_t mixed_cpp(uint64_t x);
uint64_t mixed_rust(uint64_t x);

#ifdef __cplusplus
}
#endif

static inline uint64_t mix_once(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	return x ^ (x >> 29);
}

static inline uint64_t mix(uint64_t x, int rounds)
{
	for (int i = 0; i < rounds; i++)
		x = mix_once(x + i);
	return x;
}

#endif
