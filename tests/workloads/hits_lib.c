// SPDX-License-Identifier: MIT OR Apache-2.0
/* A library with two versions of one function, for hits.c. */
#include "hits_lib.h"

unsigned long versioned_old(unsigned long x)
{
	return x * 3 + 1;
}

unsigned long versioned_new(unsigned long x)
{
	return x * 5 + 1;
}

__asm__(".symver versioned_old, versioned@HITS_1");
__asm__(".symver versioned_new, versioned@@HITS_2");
