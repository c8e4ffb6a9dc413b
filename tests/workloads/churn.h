/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What churn.c, churn_program.c, the Makefile and the tests agree upon. */
#ifndef CHURN_H
#define CHURN_H

#define CHURN_PROGRAMS 8
/* Where program 0 has churn_work() in memory (the Makefile says so to the linker); the others each one page further. */
#define CHURN_WORK 0x500000
#define CHURN_PAGE 4096

#endif
