/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time blocked: a sample at the end of each wait, with the time it took as weight.
 *
 * The user half is taken as the task blocks, while it is the current one, and waits in `waits`; it is the same until
 * the task returns to user space. The kernel half is taken when the task is about to run again: it has not moved in
 * between. So what is shorter than the limit costs no kernel half and no number. Only where the user half was not
 * whole is the return to user space hooked, as for ticks.
 *
 * A task that was switched out while it wanted to run (preempted) is not blocked.
 */
#ifndef RAWSTACK_OFFCPU_BPF_H
#define RAWSTACK_OFFCPU_BPF_H

#include "orc.bpf.h"

/* User frames that are kept of a task that is blocked. What is deeper is taken on return, where that can be hooked. */
#define MAX_WAIT_FRAMES 128

/* Set before the programs are loaded. */
struct off_cpu_config {
	__u64 min_ns; /* shorter waits are none */
	__u32 event; /* number of the event */
	__u32 pad;
};

const volatile struct off_cpu_config off_cpu_cfg = {};

/* When recording stopped: no wait ends after it. Set by user space. */
__u64 off_cpu_stopped_ns = 0;

/* A thread's wait. */
struct wait {
	__u64 since_ns; /* 0: it is not blocked */
	__u64 start_time; /* tells a reused TID */
	__u64 switches; /* how often the task was switched out up to now: tells another wait */
	__u32 pid;
	__u32 cpu; /* where it was switched out */
	__u32 user_depth;
	__u16 n_user;
	__u8 state; /* of the user half */
	__u8 wants_return; /* the user half is not whole: the return may have more */
	__u64 frames[MAX_WAIT_FRAMES]; /* user half */
};

/* Key: TID. Made at a thread's first wait, gone with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* What a new entry starts from: zeros. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wait);
} no_wait SEC(".maps");

/*
 * Whether a task that is being switched out, or does not run, is blocked: its state is not running. Read here and not
 * from the tracepoint's arguments, which are others in each series, and count a task with a signal as blocked.
 */
static __always_inline bool is_blocked(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return old->state;
}

/* An int that 7.3 made smaller. */
static __always_inline bool is_running(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD_PROBED(task, on_cpu);
}

static __always_inline __u64 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

/* Make the entry of a thread; not 0 where there is one, or no room. */
static __always_inline long make_wait(__u32 tid)
{
	__u32 zero = 0;
	struct wait *fresh = bpf_map_lookup_elem(&no_wait, &zero);

	return fresh ? bpf_map_update_elem(&waits, &tid, fresh, BPF_NOEXIST) : -1;
}

/* The entry of the task, made where there is none; NULL: no room. */
static __always_inline struct wait *wait_of(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wait *wait = bpf_map_lookup_elem(&waits, &tid);

	if (!wait) {
		make_wait(tid);
		wait = bpf_map_lookup_elem(&waits, &tid);
	}
	return wait;
}

/* All of a wait but its user half. It counts once since_ns is set. */
static __always_inline void begin_wait(struct wait *wait, struct task_struct *task, __u32 cpu)
{
	wait->start_time = task->start_time;
	wait->switches = switches_of(task);
	wait->pid = task->tgid;
	wait->cpu = cpu;
	wait->state = STATE_COMPLETE;
	wait->user_depth = 0;
	wait->n_user = 0;
	wait->wants_return = 0;
}

/* The user half of the current task, which blocks: into `e`, and from there to where it waits. */
static __always_inline void take_waiting_half(struct wait *wait, __u32 level, struct tick_event *e,
					      struct task_struct *task, const enum capture_how how)
{
	__u32 n;

	if (!has_user_half(task, how))
		return;
	e->n_kernel = 0;
	e->at = 0;
	take_user_now(e, level, MAX_WAIT_FRAMES, how == CAPTURE_PLAIN);
	wait->state = e->state;
	wait->user_depth = e->user_depth;
	n = e->n_user;
	if (n > MAX_WAIT_FRAMES) /* never: says so to the verifier */
		n = MAX_WAIT_FRAMES;
	wait->n_user = n;
	bpf_probe_read_kernel(wait->frames, n * sizeof(__u64), e->frames);
	if (how != CAPTURE_DEFERRED)
		return;
	/* Truncated as was asked for: the return has no more. */
	wait->wants_return = e->state == STATE_FAULTED ||
			     (e->state == STATE_TRUNCATED && capture_cfg.max_user_frames > MAX_WAIT_FRAMES);
}

/* Put the halves of the wait of `task`, which does not run, into `e`. */
static __always_inline void take_halves(struct tick_event *e, struct wait *wait, struct task_struct *task,
					const enum capture_how how)
{
	__u64 n = wait->n_user;
	__u64 first;

	e->cpu = wait->cpu;
	if (capture_cfg.kernel_stacks && how == CAPTURE_DEFERRED)
		take_switched_out(e, task);
	else if (capture_cfg.kernel_stacks)
		take_by_helper(e, task);
	e->state = wait->state;
	e->user_depth = wait->user_depth;
	first = e->n_kernel;
	barrier_var(first); /* let each be checked and used in one register: that is the one with bounds */
	barrier_var(n);
	if (first > MAX_KERNEL_FRAMES || n > MAX_WAIT_FRAMES) /* never: says so to the verifier */
		return;
	e->n_user = n;
	bpf_probe_read_kernel(&e->frames[first], n * sizeof(__u64), wait->frames);
}

/* Number the wait of thread `tid` that lasted until `end_ns`. */
static __always_inline void number_wait(struct cpu_state *cpu, __u32 level, struct tick_event *e, struct wait *wait,
					__u64 tid, __u64 end_ns)
{
	struct capture_request request = {
		.weight = end_ns - wait->since_ns,
		.event = off_cpu_cfg.event,
	};

	begin_tick(cpu, level, e, (__u64)wait->pid << 32 | tid, &request);
	e->time_ns = end_ns;
}

/* The event has its number: `task` is about to run. */
static __always_inline void send_wait(struct cpu_state *cpu, struct tick_event *e, struct wait *wait,
				      struct task_struct *task, const enum capture_how how)
{
	take_halves(e, wait, task, how);
	if (how == CAPTURE_DEFERRED && wait->wants_return && !defer_user(cpu, e, task))
		e->state = STATE_SCHEDULE_FAILED;
	if (e->state == STATE_COMPLETE && e->flags & TICK_KERNEL_CUT)
		e->state = STATE_TRUNCATED;
	send_tick(cpu, e);
}

/* Whether the entry is of this very wait of the task. */
static __always_inline bool is_this_wait(struct wait *wait, struct task_struct *task)
{
	return wait->since_ns && wait->start_time == task->start_time && wait->switches == switches_of(task);
}

/* The wait of a task that is about to run, if it was one, and long enough. */
static __always_inline struct wait *ended_wait(struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid;
	struct wait *wait;

	if (!tid) /* idle */
		return NULL;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait || !is_this_wait(wait, task))
		return NULL;
	if (now - wait->since_ns >= off_cpu_cfg.min_ns)
		return wait;
	wait->since_ns = 0; /* or it would pass for one that never ended, if the task runs until recording stops */
	return NULL;
}

/* Whether the current task, which is being switched out, begins a wait. One that ends is past its last stack. */
static __always_inline bool begins_wait(struct task_struct *task, bool preempted)
{
	return !preempted && task->pid && is_blocked(task) && !(task->flags & PF_EXITING) && wanted();
}

/* A switch: what it is, and when. */
struct switching {
	struct task_struct *prev;
	struct task_struct *next;
	struct wait *ended; /* by next, or NULL */
	bool begins; /* one of prev */
	__u64 now;
};

/* What a switch does, at `level`, which is ours. */
static __always_inline void switch_at(struct cpu_state *cpu, __u32 level, const struct switching *s,
				      const enum capture_how how)
{
	__u32 key = level; /* a copy, as in reserve_at() */
	struct tick_event *e = bpf_map_lookup_elem(&tick_scratch, &key);
	struct wait *wait;

	if (!e || level >= LEVELS)
		return;
	if (s->ended) {
		number_wait(cpu, level, e, s->ended, s->next->pid, s->now);
		send_wait(cpu, e, s->ended, s->next, how);
		s->ended->since_ns = 0;
	}
	if (!s->begins)
		return;
	wait = wait_of(s->prev);
	if (!wait) {
		count_unnumbered(cpu, DROP_BUFFER_FULL);
		return;
	}
	begin_wait(wait, s->prev, bpf_get_smp_processor_id());
	take_waiting_half(wait, level, e, s->prev, how);
	wait->since_ns = s->now;
}

/* sched_switch(preempt, prev, next, ...), with the run queue locked and interrupts off. */
static __always_inline int on_switch(__u64 *ctx, const enum capture_how how)
{
	struct switching s = {
		.prev = (struct task_struct *)ctx[1],
		.next = (struct task_struct *)ctx[2],
		.now = bpf_ktime_get_ns(),
	};
	struct cpu_state *cpu = this_cpu_state();
	__u32 level;

	s.begins = begins_wait(s.prev, ctx[0]);
	s.ended = ended_wait(s.next, s.now);
	if (!cpu || off_cpu_stopped_ns || (!s.begins && !s.ended))
		return 0;
	level = free_level();
	if (level < LEVELS) {
		cpu->busy[level] = 1;
		switch_at(cpu, level, &s, how);
		cpu->busy[level] = 0;
	} else {
		count_unnumbered(cpu, DROP_CONTENDED);
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int off_cpu_deferred(__u64 *ctx)
{
	return on_switch(ctx, CAPTURE_DEFERRED);
}

SEC("tp_btf/sched_switch")
int off_cpu_immediate(__u64 *ctx)
{
	return on_switch(ctx, CAPTURE_IMMEDIATE);
}

SEC("tp_btf/sched_switch")
int off_cpu_plain(__u64 *ctx)
{
	return on_switch(ctx, CAPTURE_PLAIN);
}

/*
 * For each task, once at the start: what is blocked already waits from now on. Its user half is out of reach until it
 * returns. A task that stops waiting meanwhile has another count of switches when it next comes by, or another wait.
 */
SEC("iter/task")
int off_cpu_begin(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[1];
	struct wait *wait;
	__u64 address;
	__u32 tid;

	if (!task || is_running(task) || !is_blocked(task) || task->flags & PF_EXITING)
		return 0;
	/* As a number: a pointer may not go where the verifier expects one. */
	bpf_probe_read_kernel(&address, sizeof(address), &ctx[1]);
	if (!wanted_task(address))
		return 0;
	tid = task->pid;
	if (make_wait(tid))
		return 0; /* it has been switched since */
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait)
		return 0;
	begin_wait(wait, task, task->wake_cpu);
	if (has_user_half(task, CAPTURE_PLAIN)) {
		wait->state = STATE_FAULTED;
		wait->wants_return = 1;
	}
	wait->since_ns = bpf_ktime_get_ns();
	return 0;
}

/* A wait that had not ended when recording stopped. */
static __always_inline void send_unended(struct cpu_state *cpu, __u32 level, struct wait *wait,
					 struct task_struct *task)
{
	__u32 key = level; /* a copy, as in reserve_at() */
	struct tick_event *e = bpf_map_lookup_elem(&tick_scratch, &key);

	if (!e || level >= LEVELS)
		return;
	number_wait(cpu, level, e, wait, task->pid, off_cpu_stopped_ns);
	/* One that runs by now has another kernel half; its user half is the wait's all the same. */
	if (!is_running(task))
		take_halves(e, wait, task, CAPTURE_PLAIN);
	e->state = STATE_PENDING;
	e->flags |= TICK_BLOCKED;
	send_tick(cpu, e);
}

/* For each task, once at the end. A byte goes to the reader for each event, so that it can empty the buffer meanwhile. */
SEC("iter/task")
int off_cpu_end(__u64 *ctx)
{
	struct bpf_iter_meta *meta = (struct bpf_iter_meta *)ctx[0];
	struct task_struct *task = (struct task_struct *)ctx[1];
	struct cpu_state *cpu;
	struct wait *wait;
	__u32 level, tid;

	if (!task)
		return 0;
	tid = task->pid;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait || !is_this_wait(wait, task) || off_cpu_stopped_ns < wait->since_ns + off_cpu_cfg.min_ns)
		return 0;
	cpu = this_cpu_state();
	level = free_level(); /* first, as in capture_reserve() */
	if (bpf_ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
	if (cpu && level < LEVELS && !cpu->busy[level]) {
		cpu->busy[level] = 1;
		send_unended(cpu, level, wait, task);
		cpu->busy[level] = 0;
	}
	if (bpf_ksym_exists(bpf_preempt_enable))
		bpf_preempt_enable();
	wait->since_ns = 0;
	bpf_seq_write(meta->seq, "", 1);
	return 0;
}

/* sched_process_exec(task, old_pid, bprm): any thread's exec takes over the process's PID, and leaves its own TID. */
SEC("raw_tp/sched_process_exec")
int off_cpu_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 old_tid = ctx->args[1];

	if (old_tid != (__u32)bpf_get_current_pid_tgid())
		bpf_map_delete_elem(&waits, &old_tid);
	return 0;
}

/* sched_process_exit(task): a thread that ended waits for nothing. */
SEC("raw_tp/sched_process_exit")
int off_cpu_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&waits, &tid);
	return 0;
}

#endif
