/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies of the current task's user stack, to be unwound elsewhere: the registers with which it returns to user space, and
 * memory from the stack pointer to the end of the mapping that it lies in. Part of capture.bpf.h, whose maps it uses; knows
 * nothing of frames.
 */
#ifndef RAWSTACK_COPY_BPF_H
#define RAWSTACK_COPY_BPF_H

/* Granularity of what may be missing: no kernel has smaller pages. */
#define COPY_PAGE 4096
/* Pages that a copy touches at most. */
#define COPY_PAGES (MAX_COPY_BYTES / COPY_PAGE + 1)

#if defined(__TARGET_ARCH_x86)
#define RED_ZONE 128 /* functions that call nothing keep variables below the stack pointer */
#else
#define RED_ZONE 0
#endif

/*
 * Where a copy is put together, one for each CPU: whoever finds it in use does without. Who loads this with copies makes
 * it as long as the host has CPUs, and an element as large as a copy, its last part and a page.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copy_event);
} copy_scratch SEC(".maps");

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

#if defined(__TARGET_ARCH_x86)
#define SP_NUMBER 7

static __always_inline __u64 ip_of(struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, ip);
}

/* By DWARF number. The last is where the code stands, which the caller knows better while uprobes have it elsewhere. */
static __always_inline void copy_registers(struct copy_event *e, struct pt_regs *regs, __u64 ip)
{
	e->n_registers = 17;
	e->registers[0] = BPF_CORE_READ(regs, ax);
	e->registers[1] = BPF_CORE_READ(regs, dx);
	e->registers[2] = BPF_CORE_READ(regs, cx);
	e->registers[3] = BPF_CORE_READ(regs, bx);
	e->registers[4] = BPF_CORE_READ(regs, si);
	e->registers[5] = BPF_CORE_READ(regs, di);
	e->registers[6] = BPF_CORE_READ(regs, bp);
	e->registers[7] = BPF_CORE_READ(regs, sp);
	e->registers[8] = BPF_CORE_READ(regs, r8);
	e->registers[9] = BPF_CORE_READ(regs, r9);
	e->registers[10] = BPF_CORE_READ(regs, r10);
	e->registers[11] = BPF_CORE_READ(regs, r11);
	e->registers[12] = BPF_CORE_READ(regs, r12);
	e->registers[13] = BPF_CORE_READ(regs, r13);
	e->registers[14] = BPF_CORE_READ(regs, r14);
	e->registers[15] = BPF_CORE_READ(regs, r15);
	e->registers[16] = ip;
}
#elif defined(__TARGET_ARCH_arm64)
#define SP_NUMBER 31

static __always_inline __u64 ip_of(struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, pc);
}

static __always_inline void copy_registers(struct copy_event *e, struct pt_regs *regs, __u64 ip)
{
	int i;

	e->n_registers = 33;
	for (i = 0; i < 31; i++)
		e->registers[i] = BPF_CORE_READ(regs, regs[i]);
	e->registers[31] = BPF_CORE_READ(regs, sp);
	e->registers[32] = ip;
}
#endif

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

/* Whether `sp` is on the stack for signal handlers, as on_sig_stack() in include/linux/sched/signal.h. */
static __always_inline bool on_signal_stack(struct task_struct *task, __u64 sp)
{
	return sp > task->sas_ss_sp && sp - task->sas_ss_sp <= task->sas_ss_size;
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

/* What is put together of return addresses. */
struct copy_returns {
	struct copy_event *e;
	__u64 instance;
	__u64 offset;
};

/* One return address that a uretprobe replaced, behind the bytes. */
static long copy_return(__u32 i, void *data)
{
	struct copy_returns *returns = data;
	struct return_instance *instance = (struct return_instance *)returns->instance;
	struct copy_event *e = returns->e;
	__u64 offset = returns->offset + (__u64)i * sizeof(struct copy_return);
	struct copy_return own;

	if (!instance)
		return 1;
	own.place = BPF_CORE_READ(instance, stack);
	own.address = BPF_CORE_READ(instance, orig_ret_vaddr);
	barrier_var(offset);
	/* Behind the room there is a page, and MAX_RETURNS of these fit it. */
	if (offset > COPY_ROOM + MAX_RETURNS * sizeof(own))
		return 1;
	__builtin_memcpy(&e->bytes[offset], &own, sizeof(own));
	e->n_returns = i + 1;
	returns->instance = (__u64)BPF_CORE_READ(instance, next);
	return 0;
}

/* What uprobes have changed of the stack, of which `ip` and `sp` are the registers. Gives the true stack pointer. */
static __always_inline __u64 take_returns(struct copy_event *e, struct task_struct *task, __u64 ip, __u64 sp)
{
	struct copy_returns returns = { .e = e, .offset = copied_bytes(e) };
	struct uprobe_task *utask;

	e->n_returns = 0;
	if (!bpf_core_field_exists(task->utask) || !bpf_core_field_exists(task->mm->uprobes_state.xol_area))
		return sp; /* CONFIG_UPROBES=n */
	utask = BPF_CORE_READ(task, utask);
	e->trampoline = utask ? BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr) : 0;
	if (!e->trampoline)
		return sp;
	returns.instance = (__u64)BPF_CORE_READ(utask, return_instances);
	sp = leave_trampoline(e->trampoline, returns.instance, ip, sp);
	bpf_loop(MAX_RETURNS, copy_return, &returns, 0);
	return sp;
}

static __always_inline int send_copy(struct copy_event *e)
{
	__u64 len = copied_bytes(e);
	__u64 size, n;

	barrier_var(len);
	if (len > COPY_ROOM)
		len = COPY_ROOM;
	n = e->n_returns;
	barrier_var(n);
	if (n > MAX_RETURNS)
		n = MAX_RETURNS;
	size = __builtin_offsetof(struct copy_event, bytes) + len + n * sizeof(struct copy_return);
	/* What comes behind it is worth more: leave an eighth of the room to that. */
	if (output_failure(size + (bpf_ringbuf_query(&events, 1 /* BPF_RB_RING_SIZE */) >> 3)) == DROP_BUFFER_FULL)
		return COPY_BUFFER_FULL;
	if (bpf_ringbuf_output(&events, e, size, wakeup_flags()))
		return COPY_CONTENDED;
	return COPY_TAKEN;
}

static __always_inline int fill_copy(struct copy_event *e, __u64 owner, __u64 ip, __u64 high, bool partial)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 id = bpf_get_current_pid_tgid();
	int reason = copy_stacks(e, task, BPF_CORE_READ(regs, sp), high, partial);

	if (reason)
		return reason;
	e->type = EVENT_COPY;
	e->owner = owner;
	e->pid = id >> 32;
	e->tid = id;
	e->time_ns = bpf_ktime_get_ns();
	e->vdso = bpf_core_field_exists(task->mm->context.vdso) ? (__u64)BPF_CORE_READ(task, mm, context.vdso) : 0;
	copy_registers(e, regs, ip);
	e->registers[SP_NUMBER] = take_returns(e, task, ip_of(regs), e->registers[SP_NUMBER]);
	return send_copy(e);
}

/*
 * Copy the current task's stack for the user half of `owner`, whose code stands at `ip`, and send it. Its mapping ends at
 * `high`, where that is known and not 0. Gives enum copy_state: COPY_RETRY where a page is missing, or the list of mappings
 * is in use, and `partial` does not allow that. This CPU must not be given up.
 *
 * Not static, so that the verifier goes through it once, as take_user().
 */
__noinline int take_copy(__u64 owner, __u64 ip, __u64 high, bool partial)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct copy_event *e = bpf_map_lookup_elem(&copy_scratch, &cpu);
	int state;

	if (!e || !capture_cfg.copy_bytes || e->busy)
		return COPY_CONTENDED;
	e->busy = 1;
	barrier();
	state = fill_copy(e, owner, ip, high, partial);
	barrier();
	e->busy = 0;
	return state;
}

/* Bring one page of a copy in. */
static long fetch_page(__u32 i, void *data)
{
	struct copy_bounds *span = data;
	__u64 at = (span->low & ~(COPY_PAGE - 1ULL)) + (__u64)i * COPY_PAGE;
	__u8 byte;

	if (at < span->low)
		at = span->low;
	if (at >= span->high)
		return 1;
	/* What is not there even so is told when it is read. */
	bpf_copy_from_user(&byte, sizeof(byte), (void *)at);
	return 0;
}

/* Note in `slot` what has to be brought in for the copy that take_copy() just could not make on this CPU. */
static __always_inline void note_unread(struct slot *slot)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct copy_event *e = bpf_map_lookup_elem(&copy_scratch, &cpu);
	__u32 number;

	slot->fetch_from = 0;
	slot->fetch_to = 0;
	if (!e)
		return;
	number = e->unread;
	if (number >= COPY_SPANS)
		return;
	slot->fetch_from = e->spans[number].start;
	slot->fetch_to = slot->fetch_from + e->spans[number].asked;
}

/* Bring in the pages that a copy of the current task's stack misses. May sleep. */
static __always_inline void fetch_copy(struct slot *slot)
{
	struct copy_bounds span = { .low = slot->fetch_from, .high = slot->fetch_to };

	if (capture_cfg.copy_bytes && span.low < span.high)
		bpf_loop(COPY_PAGES, fetch_page, &span, 0);
}

#endif
