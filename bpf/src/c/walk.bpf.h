/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The user half of the current task's stack, by frame pointers. Knows nothing of events and maps of the capture.
 *
 * The kernel's own walk is not enough: it says neither that it was cut nor that a page was missing, and it follows
 * whatever code without frame pointers keeps in that register. This walk stays in the stack's mapping: a chain that
 * leaves it is the end of the chain, a page of it that is not there is a fault.
 */
#ifndef RAWSTACK_WALK_BPF_H
#define RAWSTACK_WALK_BPF_H

enum walk_end {
	WALK_ON = 0,
	WALK_DONE = 1, /* reached the outermost frame */
	WALK_FAULT = 2, /* a page of the stack was not there */
};

struct walk {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 *frames; /* room for `room` */
	__u64 high; /* end of the stack's mapping, 0: not asked yet */
	__u64 trampoline; /* where uretprobes return to, 0: the task has none */
	__u64 instance; /* the replaced return address to look at next: a struct return_instance, as a number */
	__u64 link; /* return address at a function's first instruction */
	__u64 extra; /* frames ahead of the first record, beside the leaf: 0 or 1, and not known to the verifier */
	__u32 room;
	__u32 depth; /* frames seen */
	__u32 kept; /* frames stored: set at the end */
	__u16 compat; /* 32-bit code */
	__u16 end;
};

/*
 * Kernels before 5.17 have no bpf_loop() and no callbacks: there a bounded loop of this many frames, the kernel's own
 * limit, has to do. `plain` is a constant in all that follows.
 */
#define PLAIN_FRAMES 127

/* A step further than this asks where the stack ends, before it is believed. */
#define FAR (64 << 10)
/* Taken for the rest of the stack when the kernel cannot say: the usual limit. */
#define USUAL_STACK (8 << 20)

#if defined(__TARGET_ARCH_x86)
#define USER32_CS 0x23
#define ADDRESS_MASK (~0ULL)

static __always_inline bool read_registers(struct walk *walk, struct pt_regs *regs)
{
	walk->ip = BPF_CORE_READ(regs, ip);
	walk->sp = BPF_CORE_READ(regs, sp);
	walk->fp = BPF_CORE_READ(regs, bp);
	walk->compat = BPF_CORE_READ(regs, cs) == USER32_CS;
	walk->link = 0;
	return (BPF_CORE_READ(regs, cs) & 3) == 3;
}
#elif defined(__TARGET_ARCH_arm64)
#define PSTATE_32BIT 0x10
/* A return address may carry a pointer authentication code above bit 47. */
#define ADDRESS_MASK ((1ULL << 48) - 1)

static __always_inline bool read_registers(struct walk *walk, struct pt_regs *regs)
{
	__u64 pstate = BPF_CORE_READ(regs, pstate);

	walk->ip = BPF_CORE_READ(regs, pc);
	walk->sp = BPF_CORE_READ(regs, sp);
	walk->fp = BPF_CORE_READ(regs, regs[29]);
	walk->link = BPF_CORE_READ(regs, regs[30]);
	/* 32-bit code has its registers elsewhere, and compilers do not agree on its frames: the leaf is all there is. */
	if (pstate & PSTATE_32BIT) {
		walk->compat = 1;
		walk->sp = BPF_CORE_READ(regs, regs[13]);
		walk->fp = 0;
		walk->link = BPF_CORE_READ(regs, regs[14]);
	}
	return (pstate & 0xf) == 0;
}
#endif

/* The registers with which the current task will return to user space; false when it has none. */
static __always_inline bool start_walk(struct walk *walk, struct task_struct *task)
{
	struct pt_regs *regs;

	/* Before 5.15: at the top of the kernel stack, as task_pt_regs() in arch/x86/include/asm/processor.h. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	else
		regs = (struct pt_regs *)(BPF_CORE_READ(task, stack) + capture_cfg.thread_size -
					  bpf_core_type_size(struct pt_regs));
	return read_registers(walk, regs);
}

/* Room of one piece of code in the uprobes' page: the trampoline is the first. */
#define XOL_SLOT 128

/*
 * A uretprobe replaces the return address of the function it is on by its trampoline's, and notes where on the stack
 * that was. The first note from `instance` on of an address that lies above `below`; 0: none. Notes below are of
 * functions that keep no frames, or that were left by longjmp().
 *
 * Numbers in, number out, not static: the verifier goes through it once.
 */
__noinline __u64 next_return(__u64 instance, __u64 below)
{
	struct return_instance *next;
	int i;

	for (i = 0; i < MAX_RETURNS && instance; i++) {
		next = (struct return_instance *)instance;
		if (BPF_CORE_READ(next, stack) > below)
			return instance;
		instance = (__u64)BPF_CORE_READ(next, next);
	}
	return 0;
}

/* The return address that was where the trampoline's is now, above `below` on the stack. */
static __always_inline __u64 true_return(struct walk *walk, __u64 below)
{
	struct return_instance *instance;

	walk->instance = next_return(walk->instance, below);
	if (!walk->instance)
		return walk->trampoline;
	instance = (struct return_instance *)walk->instance;
	return BPF_CORE_READ(instance, orig_ret_vaddr);
}

#if defined(__TARGET_ARCH_x86)
/*
 * In the trampoline of 6.11 and newer, behind its system call (at 13): the note is gone, the address lies on the stack
 * above two saved registers (popped at 13 and 15; `ret` at 16).
 */
static __always_inline __u64 pushed_return(struct walk *walk, __u64 at)
{
	__u64 address = 0;

	if (at < 13 || at > 16)
		return walk->ip;
	bpf_probe_read_user(&address, sizeof(address), (void *)(walk->sp + (at == 13 ? 16 : at == 15 ? 8 : 0)));
	return address ? address : walk->ip;
}
#else
static __always_inline __u64 pushed_return(struct walk *walk, __u64 at)
{
	return walk->ip;
}
#endif

/* Where the code really is while uprobes have it elsewhere: in a copy of its instruction, or on its way back. */
static __always_inline void leave_uprobes(struct walk *walk, struct uprobe_task *utask, const bool is_current)
{
	__u64 copy = BPF_CORE_READ(utask, xol_vaddr);
	__u64 at = walk->ip - walk->trampoline;
	struct return_instance *instance;

	if (at < XOL_SLOT) {
		/* At its start, the trampoline's stack pointer is one word above the place; then it pushes three. */
		walk->instance = next_return(walk->instance, walk->sp - 9);
		instance = (struct return_instance *)walk->instance;
		if (instance && BPF_CORE_READ(instance, stack) <= walk->sp + 16)
			walk->ip = BPF_CORE_READ(instance, orig_ret_vaddr);
		else if (is_current)
			walk->ip = pushed_return(walk, at);
	} else if (copy && walk->ip - copy < XOL_SLOT) {
		walk->ip = BPF_CORE_READ(utask, vaddr) + (walk->ip - copy);
	}
}

/*
 * The stack pointer where leave_uprobes() says that the code is, when it was `sp` at `ip`: in the trampoline it is still, or
 * again, below what the function returned to.
 */
static __always_inline __u64 leave_trampoline(__u64 trampoline, __u64 instances, __u64 ip, __u64 sp)
{
#if defined(__TARGET_ARCH_x86)
	__u64 at = ip - trampoline;
	__u64 instance, place;

	if (at >= XOL_SLOT)
		return sp;
	instance = next_return(instances, sp - 9);
	place = instance ? BPF_CORE_READ((struct return_instance *)instance, stack) : ~0ULL;
	if (place <= sp + 16)
		return place + 8;
	if (at >= 13 && at <= 16)
		return sp + (at == 13 ? 24 : at == 15 ? 16 : 8);
#endif
	return sp;
}

/* Learn what uprobes have changed of the stack of `task`, and read it where that is the current one. */
static __always_inline void find_uprobes(struct walk *walk, struct task_struct *task, const bool is_current)
{
	struct uprobe_task *utask;

	if (!bpf_core_field_exists(task->utask) || !bpf_core_field_exists(task->mm->uprobes_state.xol_area))
		return; /* CONFIG_UPROBES=n */
	utask = BPF_CORE_READ(task, utask);
	if (!utask)
		return;
	walk->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
	if (!walk->trampoline)
		return;
	walk->instance = (__u64)BPF_CORE_READ(utask, return_instances);
	leave_uprobes(walk, utask, is_current);
}

static long keep_bounds(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	struct walk *walk = data;

	walk->high = vma->vm_end;
	return 0;
}

/* Whether a frame may lie at walk->fp: on the stack, above the stack pointer. */
static __always_inline bool on_stack(struct walk *walk, const bool plain)
{
	if (!walk->high) {
		if (!plain && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma))
			bpf_find_vma(bpf_get_current_task_btf(), walk->sp, keep_bounds, walk, 0);
		if (!walk->high)
			walk->high = walk->sp + USUAL_STACK;
	}
	return walk->fp < walk->high;
}

/* Where the stack's mapping ends, if the walk asked and the kernel said it; else 0. */
static __always_inline __u64 known_end(const struct walk *walk)
{
	return walk->high == walk->sp + USUAL_STACK ? 0 : walk->high;
}

/*
 * Store the frame at `place`, which is the number of the round: a count of our own in `walk` would be another number on
 * each way through, and in each round, and the verifier would go through all of them. Some kernels (6.19, 7.0) then
 * give up after a million instructions, with bpf_loop() too.
 */
static __always_inline void keep(struct walk *walk, __u64 place, __u64 address)
{
	walk->depth = place + 1;
	barrier_var(place); /* let it be checked and used in one register: that is the one with bounds */
	if (place < walk->room && place < MAX_USER_FRAMES)
		walk->frames[place] = address & ADDRESS_MASK;
}

/* Read the frame record at walk->fp. */
static __always_inline long read_record(struct walk *walk, __u64 record[2])
{
	__u32 narrow[2] = {};
	long err;

	if (!walk->compat)
		return bpf_probe_read_user(record, 2 * sizeof(__u64), (void *)walk->fp);
	err = bpf_probe_read_user(narrow, sizeof(narrow), (void *)walk->fp);
	record[0] = narrow[0];
	record[1] = narrow[1];
	return err;
}

/* Whether walk->fp can be a frame record at all: aligned, and not below what is above it. */
static __always_inline bool plausible(struct walk *walk, __u64 below, const bool plain)
{
	if (walk->fp < below || walk->fp & (walk->compat ? 3 : 7))
		return false;
	return walk->fp - below < FAR || on_stack(walk, plain);
}

/* Go on from the record just read. */
static __always_inline void advance(struct walk *walk, const __u64 record[2], const bool plain)
{
	__u64 fp = walk->fp;

	walk->fp = record[0];
	if (!plausible(walk, fp + 1, plain))
		walk->end = WALK_DONE;
}

/* One frame further, to `place`, until walk->end says why not. */
static __always_inline void step(struct walk *walk, __u64 place, const bool plain)
{
	__u64 record[2] = {};

	if (read_record(walk, record)) {
		walk->end = on_stack(walk, plain) ? WALK_FAULT : WALK_DONE;
	} else if (!record[1]) {
		walk->end = WALK_DONE;
	} else {
		if (walk->trampoline && record[1] == walk->trampoline)
			record[1] = true_return(walk, walk->fp);
		keep(walk, place, record[1]);
		advance(walk, record, plain);
	}
}

/* The same for bpf_loop(): 1 ends it. */
static long walk_step(__u32 i, void *data)
{
	struct walk *walk = data;

	step(walk, (__u64)i + 1 + walk->extra, false);
	return walk->end != WALK_ON;
}

/* One frame further with page faults allowed, keeping nothing: only to bring the pages in. */
static long fetch_step(__u32 i, void *data)
{
	struct walk *walk = data;
	__u64 record[2] = {};

	if (read_record(walk, record) &&
	    (!on_stack(walk, false) || bpf_copy_from_user(record, sizeof(record), (void *)walk->fp))) {
		walk->end = WALK_DONE;
		return 1;
	}
	if (!record[1])
		return 1;
	advance(walk, record, false);
	return walk->end != WALK_ON;
}

/* Always 0, which the verifier cannot know. */
__u64 unknown_zero;

/*
 * Let the verifier take the ways that lead to a loop for one where they differ in these numbers alone: it goes through the
 * loop for each of them, and that was more than a third of all that it went through.
 */
static __always_inline void forget_numbers(struct walk *walk)
{
	__u64 zero = *(volatile __u64 *)&unknown_zero;

	walk->high |= zero;
	walk->link |= zero;
	walk->extra |= zero;
	walk->depth |= zero;
	walk->compat |= zero;
	walk->trampoline |= zero;
	walk->instance |= zero;
}

/* Bring in the pages that hold the current task's frame records. May sleep. */
static __always_inline void fetch_stack(void)
{
	struct walk walk = {};

	if (!start_walk(&walk, bpf_get_current_task_btf()) || !plausible(&walk, walk.sp, false))
		return;
	forget_numbers(&walk);
	bpf_loop(MAX_WALK, fetch_step, &walk, 0);
}

/* At a function's first instruction: keep where it returns to, which no frame record tells yet. */
static __always_inline void keep_link(struct walk *walk)
{
#if defined(__TARGET_ARCH_x86)
	if (walk->compat)
		bpf_probe_read_user(&walk->link, sizeof(__u32), (void *)walk->sp);
	else
		bpf_probe_read_user(&walk->link, sizeof(__u64), (void *)walk->sp);
#endif
	if (walk->trampoline && walk->link == walk->trampoline)
		walk->link = true_return(walk, walk->sp - 1);
	keep(walk, 1, walk->link);
}

/* Store the frames from the instruction itself outwards; stops at the configured number, but counts on. */
static __always_inline void walk_user(struct walk *walk, __u64 *frames, __u32 room, bool at_entry, const bool plain)
{
	__u32 i;

	walk->frames = frames;
	walk->room = capture_cfg.max_user_frames < room ? capture_cfg.max_user_frames : room;
	keep(walk, 0, walk->ip);
	if (at_entry)
		keep_link(walk);
	if (!plausible(walk, walk->sp, plain))
		walk->end = WALK_DONE;
	forget_numbers(walk);
	if (!plain && walk->end == WALK_ON)
		bpf_loop(MAX_WALK, walk_step, walk, 0);
	if (plain)
		for (i = 1; i < PLAIN_FRAMES && walk->end == WALK_ON; i++)
			step(walk, i + walk->extra, true);
	walk->kept = walk->depth < walk->room ? walk->depth : walk->room;
}

static __always_inline __u8 walk_state(const struct walk *walk)
{
	if (walk->end == WALK_FAULT)
		return STATE_FAULTED;
	return walk->end == WALK_ON || walk->depth > walk->kept ? STATE_TRUNCATED : STATE_COMPLETE;
}

/* Frames that are really there, where some were not kept; ~0: more than were counted. */
static __always_inline __u32 walk_depth(const struct walk *walk)
{
	if (walk->end == WALK_ON)
		return ~0U;
	return walk->depth > walk->kept ? walk->depth : 0;
}

#endif
