/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stream's fullness: when its reader is woken, and what is lost when it has no room. Part of capture.bpf.h, whose
 * maps it uses; knows nothing of stacks.
 */
#ifndef RAWSTACK_LOSSES_BPF_H
#define RAWSTACK_LOSSES_BPF_H

static __always_inline void count_loss(struct cpu_state *cpu, __u32 reason, __u64 now)
{
	struct loss *loss;

	if (reason >= DROP_REASONS)
		return;
	loss = &cpu->losses[reason];
	if (loss->count == loss->told)
		loss->from_ns = now;
	loss->to_ns = now;
	__sync_fetch_and_add(&loss->count, 1);
}

/* A sample is lost before it had a number. */
static __always_inline void count_unnumbered(struct cpu_state *cpu, __u32 reason)
{
	__sync_fetch_and_add(&cpu->unnumbered, 1);
	count_loss(cpu, reason, bpf_ktime_get_ns());
}

/*
 * Wake the reader once when the threshold is passed, or a few times: it then empties the buffer, however much has come by
 * then. What is looked for is wider than what may come at once.
 */
static __always_inline __u64 wakeup_flags(void)
{
	__u64 waiting;

	if (!capture_cfg.wakeup_bytes)
		return 0;
	waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	if (waiting < capture_cfg.wakeup_bytes ||
	    waiting > capture_cfg.wakeup_bytes + 4 * (sizeof(struct tick_event) + capture_cfg.copy_bytes))
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

/*
 * Put losses that were not told yet into the stream, before what comes next. A tick that interrupts this leaves it alone:
 * it would tell the same losses once more.
 */
static __noinline int tell_losses(struct cpu_state *cpu)
{
	struct drop_event drop = { .type = EVENT_DROP };
	struct loss *loss;
	__u64 count;
	int i;

	if (!cpu || cpu->telling)
		return 0;
	cpu->telling = 1;
	barrier();
	drop.cpu = bpf_get_smp_processor_id();
	for (i = 0; i < DROP_REASONS; i++) {
		loss = &cpu->losses[i];
		count = loss->count - loss->told;
		if (!count)
			continue;
		drop.reason = i;
		drop.count = count;
		drop.from_ns = loss->from_ns;
		drop.to_ns = loss->to_ns;
		if (!bpf_ringbuf_output(&events, &drop, sizeof(drop), BPF_RB_NO_WAKEUP))
			loss->told += count;
	}
	barrier();
	cpu->telling = 0;
	return 0;
}

/* -EAGAIN of the ring buffer covers a full buffer and a lock that the interrupted program holds: tell them apart. */
static __always_inline __u32 output_failure(__u64 size)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	__u64 room = bpf_ringbuf_query(&events, 1 /* BPF_RB_RING_SIZE */);

	return waiting + size + 16 > room ? DROP_BUFFER_FULL : DROP_CONTENDED;
}

static __always_inline bool has_losses(struct cpu_state *cpu)
{
	return cpu->losses[DROP_BUFFER_FULL].count != cpu->losses[DROP_BUFFER_FULL].told ||
	       cpu->losses[DROP_CONTENDED].count != cpu->losses[DROP_CONTENDED].told ||
	       cpu->losses[DROP_USER_HALF].count != cpu->losses[DROP_USER_HALF].told;
}

#endif
