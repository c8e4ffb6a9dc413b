/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HITS_LIB_H
#define HITS_LIB_H

unsigned long versioned(unsigned long x);
unsigned long versioned_old(unsigned long x);
unsigned long versioned_new(unsigned long x);

#endif
