// SPDX-License-Identifier: MIT OR Apache-2.0
/* libevict.so: the library half of evict_header. */
#include <stdint.h>

__attribute__((noinline)) uint64_t evict_lib_spin(uint64_t x)
{
	for (int i = 0; i < 20000; i++)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}
