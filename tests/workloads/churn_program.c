// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One of the programs that churn runs; PROGRAM is its number. Spins for about 100 us in churn_work() and ends.
 *
 * The section .work lies at CHURN_WORK and has the same size in all of them; churn_work() of program N is in its page N.
 */
#include <sys/syscall.h>

#include "churn.h"
#include "syscall.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
/* As many pages of nothing. */
#define PAGES(count)                                                                                                   \
	__asm__(".section .work,\"ax\",@progbits\n.balign " NUMBER(CHURN_PAGE) "\n.skip (" count                       \
									       ") * " NUMBER(CHURN_PAGE) "\n.text\n")

#if PROGRAM > 0
PAGES(NUMBER(PROGRAM));
#endif

__attribute__((noinline, section(".work"))) unsigned long churn_work(unsigned long x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 6364136223846793005ul + 1442695040888963407ul;
	return x;
}

PAGES(NUMBER(CHURN_PROGRAMS) " - " NUMBER(PROGRAM));

void _start(void)
{
	call_kernel(SYS_exit_group, churn_work(1) == 0, 0, 0, 0);
}
