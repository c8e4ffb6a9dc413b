// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The recorder's programs, in one object: who is recorded, what makes a sample, and the capture library below. */
#include "capture.bpf.h"

const volatile struct recorder_config recorder_cfg = {};

/* Keep the wire types in the object's BTF: the skeleton makes Rust types of them. */
struct tick_event *unused_tick;
struct user_event *unused_user;
struct drop_event *unused_drop;
struct copy_event *unused_copy;
struct cpu_state *unused_cpu_state;
struct slot *unused_slot;

#include "targets.bpf.h"
#include "ticks.bpf.h"
#include "offcpu.bpf.h"

DEFINE_CAPTURE_HOOKS()

char LICENSE[] SEC("license") = "Dual BSD/GPL";
