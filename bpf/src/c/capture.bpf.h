/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stack capture for any BPF program, from any context:
 *
 *	__u64 id = capture_reserve(ctx, &(struct capture_request){ .weight = 1 }, CAPTURE_DEFERRED);
 *
 * gives an ID at once, to log, send or keep. The kernel half is taken here and now. The user half is taken when the
 * task returns to user space, in its own context, where page faults are allowed; a tick that interrupts user code takes
 * it at once where it can see it whole, since that return is what comes next. Both go to user space through
 * `events`; every ID ends in a state of enum stack_state. One ID is pending for a thread at most: whatever reserves
 * in the same kernel entry shares its user half, which cannot have changed.
 *
 * A program that includes this needs capture_exit() on sched_process_exit and capture_exec() on sched_process_exec:
 * DEFINE_CAPTURE_HOOKS() makes both. User space is rawstack-bpf's `Capture`.
 */
#ifndef RAWSTACK_CAPTURE_BPF_H
#define RAWSTACK_CAPTURE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.h"

#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

const volatile struct capture_config capture_cfg = {};

/* All that goes to user space, losses included, in one order. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

/* Key: TID. Grows with the threads that are sampled, up to max_entries; not LRU: an eviction would cancel the work. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/*
 * Counters and IDs, by CPU: one writer a CPU and level. Mapped by user space, which so can read it with no capability
 * left. Who loads this may make it as short as the host has CPUs; on a CPU beyond it nothing is captured.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

/* Where an event is put together; the stack has 512 bytes. One for each level of nesting. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LEVELS);
	__type(key, __u32);
	__type(value, struct tick_event);
} tick_scratch SEC(".maps");

/* The same for user halves taken on return: tasks only, and never two on one CPU (preemption is off meanwhile). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_event);
} user_scratch SEC(".maps");

/*
 * The hook on the return to user space came with 6.18 under one name and changed name and shape in 7.0. Weak: libbpf
 * leaves out what the kernel lacks or has in another shape, and bpf_ksym_exists() then picks the one that is there.
 */
typedef int (*task_work_callback_t)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
					      task_work_callback_t callback, void *aux__prog) __ksym __weak;
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw, void *map__map,
					 task_work_callback_t callback) __ksym __weak;
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* When the user half is taken, and what that needs. */
enum capture_how {
	CAPTURE_PLAIN, /* at once: 5.8 */
	CAPTURE_IMMEDIATE, /* at once, as deep as it goes: 5.17 */
	CAPTURE_DEFERRED, /* on return to user space: 6.18 */
};

/* What the caller knows of the event. */
struct capture_request {
	__u64 weight;
	__u32 event;
	__u32 at; /* AT_* bits */
	__u32 skip; /* innermost kernel frames to leave out: of the program itself and what calls it */
};

static __always_inline struct cpu_state *this_cpu_state(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

#include "losses.bpf.h"
#include "walk.bpf.h"
#include "spans.bpf.h"
#include "copy.bpf.h"

static __always_inline void begin_user(struct user_header *head, struct slot *slot, __u32 tid, __u8 state)
{
	head->type = EVENT_USER;
	head->state = state;
	head->copy = COPY_TAKEN;
	head->user_depth = 0;
	head->time_ns = bpf_ktime_get_ns();
	head->owner = slot->owner;
	head->pid = slot->pid;
	head->tid = tid;
	head->n_user = 0;
	head->pad2 = 0;
}

/* Send an outcome with the frames behind `head`; `size` in all. It ends what the slot owes, even when it was lost. */
static __always_inline void send_user(struct cpu_state *cpu, struct slot *slot, struct user_header *head, __u64 size)
{
	if (has_losses(cpu))
		tell_losses(cpu);
	if (bpf_ringbuf_output(&events, head, size, wakeup_flags()))
		count_loss(cpu, DROP_USER_HALF, head->time_ns);
	slot->done = 1;
}

/* Send an outcome without frames. */
static __always_inline void send_state(struct cpu_state *cpu, struct slot *slot, __u32 tid, __u8 state)
{
	struct user_header head;

	begin_user(&head, slot, tid, state);
	send_user(cpu, slot, &head, sizeof(head));
}

/*
 * Take and send the user half that thread `tid` owes, from what is in memory now. Returns 1 when a page of the stack
 * was missing and `fetch` says that the caller can bring it in. Preemption is off: user_scratch is ours.
 *
 * Not static, so that the verifier goes through it once, and not for each way that leads here: 6.19 and 7.0 lose
 * themselves in that. For the same reason it takes a TID: a slot's address is more than such a function may be given.
 */
__noinline int take_user(__u32 tid, bool fetch, bool exiting)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &tid);
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *cpu = this_cpu_state();
	struct user_event *e;
	struct walk walk = {};
	__u32 zero = 0;
	__u32 n;

	e = bpf_map_lookup_elem(&user_scratch, &zero);
	if (!slot || !cpu || !e)
		return 0;
	if (task->self_exec_id != slot->exec_id) {
		send_state(cpu, slot, tid, STATE_EXECED);
		return 0;
	}
	begin_user(&e->head, slot, tid, STATE_FAULTED);
	/* Another stack pointer: sigreturn or ptrace put other registers there, the stack of the tick is gone. */
	if (start_walk(&walk, task) && (walk.sp == slot->sp || slot->at & AT_PROBE)) {
		walk.ip = slot->ip;
		walk.sp = slot->sp;
		walk.fp = slot->fp;
		walk.extra = slot->at & AT_ENTRY;
		find_uprobes(&walk, task, true);
		walk_user(&walk, e->frames, MAX_USER_FRAMES, slot->at & AT_ENTRY, false);
		if (walk.end == WALK_FAULT && fetch)
			return 1;
		e->head.state = walk_state(&walk);
		e->head.user_depth = walk_depth(&walk);
		e->head.n_user = walk.kept;
		if (capture_cfg.copy_bytes && !exiting) {
			int copy = take_copy(slot->owner, walk.ip, known_end(&walk), !fetch);

			if (copy == COPY_RETRY) {
				note_unread(slot);
				return 1;
			}
			e->head.copy = copy;
		}
	}
	if (exiting)
		e->head.state = STATE_EXITED;
	n = e->head.n_user;
	if (n > MAX_USER_FRAMES) /* never: says so to the verifier */
		n = MAX_USER_FRAMES;
	send_user(cpu, slot, &e->head, sizeof(e->head) + n * sizeof(__u64));
	return 0;
}

/* Bring in what take_user() found missing. May sleep. Not inline: what it has on the stack is not there beside take_user()'s. */
static __noinline int fetch_missing(struct slot *slot)
{
	fetch_stack();
	fetch_copy(slot);
	return 0;
}

/* Each part of a copy may miss pages, and is found to only when those ahead of it are there. */
#define TRIES (3 + COPY_SPANS)

struct attempt {
	struct slot *slot;
	__u32 tid;
};

/* One attempt to take what a thread owes: 1 when no other is needed. */
static long try_return(__u32 i, void *data)
{
	struct attempt *attempt = data;
	int missing;

	bpf_preempt_disable();
	missing = take_user(attempt->tid, i < TRIES - 1, false);
	bpf_preempt_enable();
	if (missing)
		fetch_missing(attempt->slot);
	return !missing;
}

/*
 * Runs as the task, on its way back to user space. Page faults are allowed, but not while preemption is off. A page brought
 * in may be gone again before it is read: it is tried anew, but not for ever.
 */
static int on_return(struct bpf_map *map, void *key, void *value)
{
	struct attempt attempt = { .slot = value, .tid = *(__u32 *)key };

	if (!attempt.slot->done && attempt.slot->owner)
		bpf_loop(TRIES, try_return, &attempt, 0);
	return 0;
}

static __always_inline long schedule_return(struct task_struct *task, struct slot *slot)
{
	if (bpf_ksym_exists(bpf_task_work_schedule_resume_impl))
		return bpf_task_work_schedule_resume_impl(task, &slot->work, &slots, on_return, NULL);
	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		return bpf_task_work_schedule_resume(task, &slot->work, &slots, on_return);
	return -1;
}

static __always_inline struct slot *slot_of(struct cpu_state *cpu, struct task_struct *task, __u32 pid, __u32 tid)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &tid);
	struct slot fresh = {};

	if (slot && slot->start_time == task->start_time)
		return slot;
	if (slot) { /* the end of an earlier thread with this TID was missed */
		if (!slot->done)
			send_state(cpu, slot, tid, STATE_EXITED);
		bpf_map_delete_elem(&slots, &tid);
	}
	fresh.start_time = task->start_time;
	fresh.pid = pid;
	fresh.done = 1;
	if (bpf_map_update_elem(&slots, &tid, &fresh, BPF_NOEXIST))
		return NULL;
	return bpf_map_lookup_elem(&slots, &tid);
}

/*
 * Hook the return of `task`, whose event this is, to user space for e->id, or find the ID that already did. It is the
 * current task, or one that does not run. False when neither could be done: then the user half must be taken here and
 * now.
 */
static __noinline bool defer_user(struct cpu_state *cpu, struct tick_event *e, struct task_struct *task)
{
	struct slot *slot = slot_of(cpu, task, e->pid, e->tid);
	struct walk walk = {};
	long err;

	if (!slot || !read_registers(&walk, (struct pt_regs *)bpf_task_pt_regs(task)))
		return false;
	find_uprobes(&walk, task, false); /* now: they put their things in order before the return */
	/*
	 * A tick must not settle what is owed: it may interrupt the very code that does. If the task executes another
	 * program in this kernel entry, what is shared ends as exec'd away, for each of its ticks.
	 */
	if (!slot->done)
		goto share;
	if (slot->arming) { /* this tick interrupts a tracepoint's program in the lines below */
		e->at |= AT_ARMING;
		return false;
	}
	slot->arming = 1;
	barrier();
	err = schedule_return(task, slot);
	if (!err) {
		slot->owner = e->id;
		slot->exec_id = task->self_exec_id;
		slot->ip = walk.ip;
		slot->sp = walk.sp;
		slot->fp = walk.fp;
		slot->at = e->at;
		slot->done = 0;
	}
	barrier();
	slot->arming = 0;
	/* Busy although nothing is owed: the callback is just ending, in this same kernel entry. What it took is ours. */
	if (err && err != -EBUSY)
		return false;
share:
	e->owner = slot->owner;
	e->state = STATE_PENDING;
	e->n_user = 0;
	e->user_depth = 0;
	return true;
}

/* Walk the user half of the current task, `room` frames of it, into those behind the kernel's. */
static __always_inline void walk_into(struct tick_event *e, __u32 room, const bool plain)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct walk walk = {};
	__u32 first = e->n_kernel;

	e->state = STATE_FAULTED;
	if (first > MAX_KERNEL_FRAMES || !start_walk(&walk, task))
		return;
	walk.extra = e->at & AT_ENTRY;
	find_uprobes(&walk, task, true);
	walk_user(&walk, &e->frames[first], room, e->at & AT_ENTRY, plain);
	e->state = walk_state(&walk);
	e->n_user = walk.kept;
	e->user_depth = walk_depth(&walk);
	e->high = known_end(&walk);
}

/* The same into the event of a level. Not static, as take_user() is not: gone through once, not on each way that leads here. */
__noinline int walk_at(__u32 level, __u32 room)
{
	struct tick_event *e = bpf_map_lookup_elem(&tick_scratch, &level);

	if (e)
		walk_into(e, room, false);
	return 0;
}

/* Take the user half of the current task at once, into the event `e` of this level: `room` frames of it. */
static __always_inline void take_user_now(struct tick_event *e, __u32 level, __u32 room, const bool plain)
{
	if (plain)
		walk_into(e, room, true);
	else
		walk_at(level, room);
}

/* Say how much of e->frames is the kernel half; `size` in bytes. */
static __always_inline void keep_kernel(struct tick_event *e, long size)
{
	if (size <= 0) /* the tick came in user mode */
		return;
	e->n_kernel = size / sizeof(__u64);
	if (e->n_kernel >= capture_cfg.max_kernel_frames)
		e->flags |= TICK_KERNEL_CUT;
}

static __always_inline void take_kernel(void *ctx, struct tick_event *e, const __u32 skip)
{
	if (capture_cfg.kernel_stacks)
		keep_kernel(e, bpf_get_stack(ctx, e->frames, MAX_KERNEL_FRAMES * sizeof(__u64), skip));
}

/* A thread that never runs in user space has no user half: it is complete without. */
static __always_inline bool has_user_half(struct task_struct *task, const enum capture_how how)
{
	__u32 flags = BPF_CORE_READ(task, flags);
	__u32 kernel_only = PF_KTHREAD | PF_IO_WORKER;

	if (how == CAPTURE_DEFERRED) /* this bit meant something else before 6.4 */
		kernel_only |= PF_USER_WORKER;
	return capture_cfg.user_stacks && !(flags & kernel_only) && BPF_CORE_READ(task, mm);
}

/*
 * Whether the tick interrupted user code. Then the task is about to return to user space anyway: what the tick can see
 * whole, it may as well take, and spare the hook on the return.
 */
static __always_inline bool in_user_code(struct tick_event *e)
{
	return e->at & AT_PROBE || (capture_cfg.kernel_stacks && !e->n_kernel);
}

/*
 * Copy the stack whose frames the event has, too. False: a page is missing, and `partial` does not allow that.
 */
static __always_inline bool copy_now(struct tick_event *e, bool partial)
{
	__u32 first = e->n_kernel;
	int copy;

	if (!capture_cfg.copy_bytes || !e->n_user || first > MAX_KERNEL_FRAMES)
		return true;
	copy = take_copy(e->owner, e->frames[first], e->high, partial);
	if (copy == COPY_RETRY)
		return false;
	e->flags |= copy << TICK_COPY_SHIFT;
	return true;
}

static __always_inline void take_user_half(struct cpu_state *cpu, __u32 level, struct tick_event *e,
					   const enum capture_how how)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	bool exiting = BPF_CORE_READ(task, flags) & PF_EXITING;
	bool at_once = how != CAPTURE_DEFERRED || exiting;
	bool try_first = !at_once && in_user_code(e);

	if (!has_user_half(task, how)) {
		/* An exiting thread lost its memory already. */
		if (exiting && capture_cfg.user_stacks && !(BPF_CORE_READ(task, flags) & PF_KTHREAD))
			e->state = STATE_EXITED;
		goto out;
	}
	if (!at_once && !try_first && defer_user(cpu, e, bpf_get_current_task_btf()))
		return;
	take_user_now(e, level, MAX_USER_FRAMES, how == CAPTURE_PLAIN);
	if (exiting)
		e->state = STATE_EXITED;
	else if (try_first && e->state == STATE_FAULTED && defer_user(cpu, e, bpf_get_current_task_btf()))
		return;
	else if (try_first && !copy_now(e, false) && defer_user(cpu, e, bpf_get_current_task_btf()))
		return;
	else if (how == CAPTURE_IMMEDIATE)
		copy_now(e, true);
	else if (how == CAPTURE_DEFERRED && e->state == STATE_COMPLETE && e->at & AT_ARMING)
		goto out; /* the return is being hooked for another sample, and would show the same */
	else if (how == CAPTURE_DEFERRED && (!try_first || e->state == STATE_FAULTED))
		e->state = STATE_SCHEDULE_FAILED;
out:
	if (e->state == STATE_COMPLETE && e->flags & TICK_KERNEL_CUT)
		e->state = STATE_TRUNCATED;
}

static __always_inline void send_tick(struct cpu_state *cpu, struct tick_event *e)
{
	__u64 size = __builtin_offsetof(struct tick_event, frames);
	__u32 n = e->n_kernel + e->n_user;

	if (n > MAX_KERNEL_FRAMES + MAX_USER_FRAMES) /* never: says so to the verifier */
		n = MAX_KERNEL_FRAMES + MAX_USER_FRAMES;
	size += n * sizeof(__u64);
	if (has_losses(cpu))
		tell_losses(cpu);
	if (bpf_ringbuf_output(&events, e, size, wakeup_flags()))
		count_loss(cpu, output_failure(size), e->time_ns);
}

/*
 * Number the event of `task` (PID and TID as the helper gives them) at `level`, which is ours. It has neither time nor
 * stack yet.
 */
static __always_inline void begin_tick(struct cpu_state *cpu, __u32 level, struct tick_event *e, __u64 task,
				       const struct capture_request *request)
{
	e->cpu = bpf_get_smp_processor_id();
	e->id = (__u64)e->cpu << 48 | (__u64)level << 44 | ++cpu->next[level];
	e->owner = e->id;
	e->type = EVENT_TICK;
	e->state = STATE_COMPLETE;
	e->flags = 0;
	e->weight = request->weight;
	e->event = request->event;
	e->pid = task >> 32;
	e->tid = task;
	e->user_depth = 0;
	e->n_kernel = 0;
	e->n_user = 0;
	e->at = request->at;
	e->high = 0;
}

/* Reserve an ID and take what can be taken at `level`, which is ours. */
static __always_inline __u64 reserve_at(void *ctx, struct cpu_state *cpu, __u32 level,
					const struct capture_request *request, const enum capture_how how)
{
	__u32 key = level; /* a copy: the verifier forgets what it knows of a variable whose address was taken */
	struct tick_event *e = bpf_map_lookup_elem(&tick_scratch, &key);

	if (!e || level >= LEVELS)
		return 0;
	begin_tick(cpu, level, e, bpf_get_current_pid_tgid(), request);
	e->time_ns = bpf_ktime_get_ns();
	take_kernel(ctx, e, request->skip);
	take_user_half(cpu, level, e, how);
	send_tick(cpu, e);
	return e->id;
}

/*
 * The first level that is free, or LEVELS. An interrupt between this and the taking gives its level back before it
 * returns. Not static: the verifier then takes the result for any number, and what follows once, not once a level.
 */
__noinline int free_level(void)
{
	struct cpu_state *cpu = this_cpu_state();
	__u32 level;

	for (level = 0; cpu && level < LEVELS; level++) {
		if (!cpu->busy[level])
			return level;
	}
	return LEVELS;
}

/*
 * Programs of perf events and tracepoints cannot be preempted; those of uprobes can from 6.0 on, and a level is one
 * task's at a time. 6.10 has what it takes, but calls no global function then, up to 6.14, and the walk has one: 6.15 is
 * told by a type that came with it. Before, only kernels that preempt themselves fully are concerned.
 */
static __always_inline bool can_hold_cpu(const enum capture_how how)
{
	return how == CAPTURE_DEFERRED || (how == CAPTURE_IMMEDIATE && bpf_ksym_exists(bpf_preempt_disable) &&
					   bpf_core_type_exists(struct bpf_res_spin_lock));
}

/*
 * Reserve an ID for the current task's stack; 0 when the program is nested too deep (counted). `how` is a constant: it
 * decides from which kernel on the program loads.
 */
static __always_inline __u64 capture_reserve(void *ctx, const struct capture_request *request,
					     const enum capture_how how)
{
	struct cpu_state *cpu = this_cpu_state(); /* a program may be preempted, but stays on its CPU */
	__u32 level;
	__u64 id = 0;

	if (!cpu)
		return 0;
	/* Ahead of the holding, which need not call a global function by that. Who came in between has the level. */
	level = free_level();
	if (can_hold_cpu(how))
		bpf_preempt_disable();
	if (level < LEVELS && !cpu->busy[level]) {
		cpu->busy[level] = 1;
		id = reserve_at(ctx, cpu, level, request, how);
		cpu->busy[level] = 0;
	} else {
		count_unnumbered(cpu, DROP_CONTENDED);
	}
	if (can_hold_cpu(how))
		bpf_preempt_enable();
	return id;
}

/*
 * The current thread ends: settle what it owes while its memory is still there (6.16 and newer), and forget it. It has
 * PF_EXITING, so no tick owes anything to the slot any more.
 */
static __always_inline void capture_exit(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct slot *slot = bpf_map_lookup_elem(&slots, &tid);

	if (!slot)
		return;
	if (!slot->done) {
		bpf_preempt_disable();
		take_user(tid, false, true);
		bpf_preempt_enable();
	}
	bpf_map_delete_elem(&slots, &tid);
}

/*
 * The current thread executed another program and got another TID by that (any thread's exec takes over the process's
 * PID): no tick looks at the old slot any more. Under its own TID it is on_return() that finds another exec ID.
 */
static __always_inline void capture_exec(__u32 old_tid)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &old_tid);
	struct cpu_state *cpu = this_cpu_state();

	if (!slot || !cpu || old_tid == (__u32)bpf_get_current_pid_tgid())
		return;
	if (!slot->done)
		send_state(cpu, slot, old_tid, STATE_EXECED);
	bpf_map_delete_elem(&slots, &old_tid);
}

/* The hooks that deferred capture needs: sched_process_exit(task, ...), sched_process_exec(task, old_pid, bprm). */
#define DEFINE_CAPTURE_HOOKS()                                                                                         \
	SEC("raw_tp/sched_process_exit")                                                                               \
	int capture_on_exit(struct bpf_raw_tracepoint_args *ctx)                                                       \
	{                                                                                                              \
		capture_exit();                                                                                        \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("raw_tp/sched_process_exec")                                                                               \
	int capture_on_exec(struct bpf_raw_tracepoint_args *ctx)                                                       \
	{                                                                                                              \
		capture_exec(ctx->args[1]);                                                                            \
		return 0;                                                                                              \
	}

#endif
