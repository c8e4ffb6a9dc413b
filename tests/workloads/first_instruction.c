// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * first_instruction: a program without a C library, whose very first instructions already are its work.
 *
 * _start spins in first_work(), then makes a child; both spin for as long in second_work() and end, the parent with exit
 * code 7. A recorder that follows COMMAND from its first instruction sees as many samples of first_work() as of
 * second_work() in each of the two processes; one that comes late sees fewer.
 */
#include <sys/syscall.h>

#include "syscall.h"

#define SPINS 200000000ul

__attribute__((noinline)) static void first_work(void)
{
	for (unsigned long i = 0; i < SPINS; i++)
		__asm__ volatile("");
}

__attribute__((noinline)) static void second_work(void)
{
	for (unsigned long i = 0; i < SPINS; i++)
		__asm__ volatile("" ::: "memory");
}

/* A child is a copy: it has its first_work() behind it, and does it again. */
__attribute__((noinline)) static void work_in_child(void)
{
	first_work();
	second_work();
	call_kernel(SYS_exit, 0, 0, 0, 0);
}

__attribute__((noreturn)) void _start(void)
{
	long child;

	first_work();
	child = call_kernel(SYS_fork, 0, 0, 0, 0);
	if (child == 0)
		work_in_child();
	second_work();
	call_kernel(SYS_wait4, child, 0, 0, 0);
	call_kernel(SYS_exit, 7, 0, 0, 0);
	__builtin_unreachable();
}
