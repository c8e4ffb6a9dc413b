/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which memory a copy of the current task's stack has, and reading it: where stacks begin and end, what a signal handler
 * with a stack of its own has interrupted, and the end of what is longer than a copy. Part of capture.bpf.h; knows nothing
 * of registers, maps and events.
 */
#ifndef RAWSTACK_SPANS_BPF_H
#define RAWSTACK_SPANS_BPF_H

/* Granularity of what may be missing: no kernel has smaller pages. */
#define COPY_PAGE 4096
/* Pages that a copy touches at most. */
#define COPY_PAGES (MAX_COPY_BYTES / COPY_PAGE + 1)

#if defined(__TARGET_ARCH_x86)
#define RED_ZONE 128 /* functions that call nothing keep variables below the stack pointer */
#else
#define RED_ZONE 0
#endif

/* Room behind the bytes: what is read page by page, and return addresses, may begin at their end. */
#define COPY_ROOM (capture_cfg.copy_bytes + COPY_TAIL)

/* Between the stack pointer with which a program begins and its arguments' text lie pointers to it: of these so much. */
#define ENTRY_ROOM 256

struct copy_bounds {
	__u64 low;
	__u64 high;
};

/* What is read page by page. */
struct copy_pages {
	struct copy_event *e;
	struct copy_span *span;
	__u64 offset; /* of the span among the bytes */
};

static long keep_copy_bounds(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	struct copy_bounds *bounds = data;

	bounds->low = vma->vm_start;
	bounds->high = vma->vm_end;
	return 0;
}

static __always_inline __u64 thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

/*
 * Where the stack ends that has a frame at `sp` and whose mapping ends at `high`. Arguments and environment lie behind the
 * first frame of a program, and what C libraries keep of a thread behind its first one: no frames, and secrets. The
 * mapping may go on with memory of other uses.
 */
static __always_inline __u64 stack_end(struct task_struct *task, __u64 sp, __u64 high)
{
	__u64 first = BPF_CORE_READ(task, mm, start_stack);
	__u64 text = BPF_CORE_READ(task, mm, arg_start);
	__u64 end = first + ENTRY_ROOM;

	if (first < high && end > sp) {
		if (text > sp && text < end)
			end = text;
	} else {
		end = thread_pointer(task);
	}
	return end > sp && end < high ? end & ~7ULL : high;
}

/* Whether `sp` is on the stack for signal handlers: on_sig_stack() in include/linux/sched/signal.h, but for its end. */
static __always_inline bool on_signal_stack(struct task_struct *task, __u64 sp)
{
	/* A program may give any size: what goes around the end of the address space is none. */
	return sp > task->sas_ss_sp && sp < task->sas_ss_sp + task->sas_ss_size;
}

/*
 * Find the stack that `sp` lies on; else say why not. The list of mappings may be in use, and within an interrupt the
 * kernel looks at it once only: `high` is what it said then. Where it says nothing and `partial` allows that, a thread's
 * own stack is found without.
 */
static __always_inline int find_stack(struct copy_bounds *bounds, struct task_struct *task, __u64 sp, __u64 high,
				      bool partial)
{
	long err = 0;

	bounds->low = 0;
	bounds->high = high;
	if (on_signal_stack(task, sp)) {
		bounds->low = task->sas_ss_sp;
		bounds->high = task->sas_ss_sp + task->sas_ss_size;
		return COPY_TAKEN;
	}
	if (!high)
		err = bpf_find_vma(task, sp, keep_copy_bounds, bounds, 0);
	if (err == -EBUSY && !partial)
		return COPY_RETRY;
	if (err == -EBUSY)
		bounds->high = sp + USUAL_STACK;
	else if (err || bounds->high <= sp)
		return COPY_NO_STACK;
	bounds->high = stack_end(task, sp, bounds->high);
	return err && bounds->high == sp + USUAL_STACK ? COPY_CONTENDED : COPY_TAKEN;
}

/* Let a span begin at `sp` and go to the end of its stack, or have `room` bytes. */
static __always_inline void begin_span(struct copy_span *span, const struct copy_bounds *bounds, __u64 sp, __u64 room)
{
	span->start = (sp - RED_ZONE) & ~7ULL;
	if (span->start < bounds->low)
		span->start = bounds->low;
	span->end = bounds->high;
	span->asked = (span->end - span->start) & ~7ULL;
	if (span->asked > room)
		span->asked = room;
}

/* One page of a span: what is in memory, else a bit that says that it is not. */
static long copy_page(__u32 i, void *data)
{
	struct copy_pages *pages = data;
	struct copy_event *e = pages->e;
	struct copy_span *span = pages->span;
	__u64 from = (span->start & ~(COPY_PAGE - 1ULL)) + (__u64)i * COPY_PAGE;
	__u64 to = from + COPY_PAGE;
	__u64 offset, len;

	if (from < span->start)
		from = span->start;
	if (to > span->start + span->asked)
		to = span->start + span->asked;
	if (from >= to)
		return 1;
	offset = pages->offset + (from - span->start);
	len = to - from;
	barrier_var(offset);
	barrier_var(len);
	/* Behind the room there is a page. */
	if (offset >= COPY_ROOM || len > COPY_PAGE)
		return 1;
	if (bpf_probe_read_user(&e->bytes[offset], len, (void *)from)) {
		__u64 word = i / 64;

		barrier_var(word);
		if (word < COPY_WORDS)
			span->missing[word] |= 1ULL << (i % 64);
	}
	return 0;
}

/* Read the span `number` page by page to `offset`. False: as copy_memory(). */
static __always_inline bool copy_pages(struct copy_event *e, const __u32 number, __u64 offset, bool partial)
{
	struct copy_span *span = &e->spans[number];
	struct copy_pages pages = { .e = e, .span = span, .offset = offset };

	bpf_loop(COPY_PAGES, copy_page, &pages, 0);
	return partial || !(span->missing[0] | span->missing[1] | span->missing[2]);
}

/*
 * Read the memory of the span `number`, of `most` bytes, to `offset`. False: something is missing, which is not told since
 * `partial` says that it may come.
 */
static __always_inline bool copy_memory(struct copy_event *e, const __u32 number, __u64 offset, const __u64 most,
					bool partial)
{
	struct copy_span *span = &e->spans[number];
	__u64 len = span->asked;

	barrier_var(len);
	if (len > most)
		len = most;
	barrier_var(offset);
	if (offset > capture_cfg.copy_bytes)
		return true; /* never */
	if (!bpf_probe_read_user(&e->bytes[offset], len, (void *)span->start))
		return true;
	return partial && copy_pages(e, number, offset, true);
}

#if defined(__TARGET_ARCH_x86)
/* From uc_stack to uc_mcontext.sp of struct rt_sigframe, in words; that begins 8 bytes behind a multiple of 16. */
#define FRAME_SP 18
#else
#define FRAME_SP 52
#endif

/* Looks for the frame of the signal that came on another stack. */
struct signal_frame {
	struct copy_event *e;
	__u64 end; /* offset that is behind it */
	__u64 stack;
	__u64 size;
	__u64 sp; /* the interrupted one */
};

/*
 * A signal's frame says which stack it is on, as sigaltstack() did: 16 bytes further in than the last. What else is in it
 * is of a size that processors decide, so it is looked for, from the end of the stack on.
 */
static long find_frame(__u32 i, void *data)
{
	struct signal_frame *frame = data;
	__u64 offset = frame->end - (i + 1) * 16ULL;
	__u64 *words;

	barrier_var(offset);
	if (offset >= capture_cfg.copy_bytes)
		return 1; /* ahead of the first byte, too */
	words = (__u64 *)&frame->e->bytes[offset];
	/* Where a frame reaches beyond the room, there is a page. */
	if (words[0] != frame->stack || words[2] != frame->size)
		return 0;
	frame->sp = words[FRAME_SP];
	return 1;
}

/* The stack pointer of what a signal handler interrupted whose own stack the head is all of; 0: not known. */
static __always_inline __u64 interrupted_sp(struct copy_event *e, struct task_struct *task)
{
	struct copy_span *head = &e->spans[COPY_HEAD];
	struct signal_frame frame = { .e = e, .stack = task->sas_ss_sp, .size = task->sas_ss_size };
	__u64 end = head->start + head->asked;

	if (end < head->end)
		return 0;
	frame.end = (end & ~15ULL) - head->start;
	bpf_loop(MAX_COPY_BYTES / 16, find_frame, &frame, 0);
	return frame.sp;
}

/* Copy the interrupted stack of a signal handler that has its own. False: as copy_memory(). */
static __always_inline int copy_interrupted(struct copy_event *e, struct task_struct *task, bool partial)
{
	struct copy_span *head = &e->spans[COPY_HEAD];
	struct copy_span *span = &e->spans[COPY_INTERRUPTED];
	struct copy_bounds bounds = {};
	__u64 sp = interrupted_sp(e, task);
	int reason;

	if (!sp || on_signal_stack(task, sp))
		return COPY_TAKEN;
	reason = find_stack(&bounds, task, sp, 0, partial);
	if (reason)
		return reason == COPY_RETRY ? COPY_RETRY : COPY_TAKEN;
	if (head->asked > capture_cfg.copy_bytes)
		return COPY_TAKEN; /* never */
	begin_span(span, &bounds, sp, capture_cfg.copy_bytes - head->asked);
	if (copy_pages(e, COPY_INTERRUPTED, head->asked, partial))
		return COPY_TAKEN;
	e->unread = COPY_INTERRUPTED;
	return COPY_RETRY;
}

/* Copy what lies before the end of the last stack, where a copy does not reach so far. */
static __always_inline int copy_outermost(struct copy_event *e, bool partial)
{
	struct copy_span *tail = &e->spans[COPY_OUTERMOST];
	struct copy_span *last = &e->spans[COPY_HEAD];
	__u64 offset = last->asked;
	__u64 behind;

	if (e->spans[COPY_INTERRUPTED].asked) {
		last = &e->spans[COPY_INTERRUPTED];
		offset += last->asked;
	}
	behind = last->start + last->asked;
	tail->end = last->end;
	tail->asked = (tail->end - behind) & ~7ULL;
	if (tail->asked > COPY_TAIL)
		tail->asked = COPY_TAIL;
	if (tail->asked > capture_cfg.copy_bytes)
		tail->asked = capture_cfg.copy_bytes;
	if (!tail->asked)
		return COPY_TAKEN;
	tail->start = (tail->end & ~7ULL) - tail->asked;
	if (copy_memory(e, COPY_OUTERMOST, offset, COPY_TAIL, partial))
		return COPY_TAKEN;
	e->unread = COPY_OUTERMOST;
	return COPY_RETRY;
}

/* Copy the stack that `sp` is on, what it has interrupted, and the end of it. */
static __always_inline int copy_stacks(struct copy_event *e, struct task_struct *task, __u64 sp, __u64 high,
				       bool partial)
{
	struct copy_bounds bounds = {};
	int reason = find_stack(&bounds, task, sp, high, partial);

	__builtin_memset(e->spans, 0, sizeof(e->spans));
	e->unread = COPY_SPANS;
	if (reason)
		return reason;
	begin_span(&e->spans[COPY_HEAD], &bounds, sp, capture_cfg.copy_bytes);
	if (!copy_memory(e, COPY_HEAD, 0, capture_cfg.copy_bytes, partial)) {
		e->unread = COPY_HEAD;
		return COPY_RETRY;
	}
	if (on_signal_stack(task, sp)) {
		reason = copy_interrupted(e, task, partial);
		if (reason)
			return reason;
	}
	return copy_outermost(e, partial);
}

/* Bytes of all spans. */
static __always_inline __u64 copied_bytes(struct copy_event *e)
{
	return e->spans[COPY_HEAD].asked + e->spans[COPY_INTERRUPTED].asked + e->spans[COPY_OUTERMOST].asked;
}

#endif
