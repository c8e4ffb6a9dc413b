/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * System calls without the C library's functions in between. Those have no frame pointers, so that a walk through them
 * misses whoever called them.
 */
#ifndef SYSCALL_H
#define SYSCALL_H

static inline long call_kernel(long number, long a, long b, long c, long d)
{
#ifdef __x86_64__
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
#else
#error "system calls of this machine are not written down yet"
#endif
}

#endif
