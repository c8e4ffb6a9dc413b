// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Takes the kernel stack of each task that is about to run twice: by the remembered rules, and by the kernel's helper. */
#include "capture.bpf.h"
#include "orc.bpf.h"

#define SHOWN 32

__u64 same = 0; /* the rules found the helper's frames */
__u64 different = 0;
__u64 failed = 0; /* the helper has none */
__u64 helped = 0; /* there are no proven rules for all of it */
__u64 wrong[2][SHOWN] = {}; /* the last that is different: by the rules, by the helper */

static __always_inline void compare(struct tick_event *e, struct orc_walk *walk, struct task_struct *task)
{
	__u32 i;

	take_by_helper(e, task);
	if (!e->n_kernel) { /* it fails now and then */
		__sync_fetch_and_add(&failed, 1);
		return;
	}
	if (is_same_walk(walk, e)) {
		__sync_fetch_and_add(&same, 1);
		return;
	}
	__sync_fetch_and_add(&different, 1);
	for (i = 0; i < SHOWN; i++) {
		wrong[0][i] = i < walk->n ? walk->frames[i] : 0;
		wrong[1][i] = i < e->n_kernel ? e->frames[i] : 0;
	}
}

/* sched_switch(preempt, prev, next, ...) */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *next = (struct task_struct *)ctx[2];
	struct orc_walk walk = {};
	struct tick_event *e;
	__u32 zero = 0;

	e = bpf_map_lookup_elem(&tick_scratch, &zero);
	if (!e || !next->pid)
		return 0;
	e->n_kernel = 0;
	e->flags = 0;
	if (has_own_returns(next))
		walk_orc(&walk, next, &e->frames[MAX_KERNEL_FRAMES]);
	if (walk.is_whole && !walk.has_unproven) {
		compare(e, &walk, next);
		return 0;
	}
	__sync_fetch_and_add(&helped, 1);
	take_switched_out(e, next);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
