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
 * it as long as the host has CPUs, and an element as large as a copy and a page.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct copy_event);
} copy_scratch SEC(".maps");

struct copy_bounds {
	__u64 low;
	__u64 high;
};

/* What is read page by page. */
struct copy_pages {
	struct copy_event *e;
	__u64 start;
	__u64 asked;
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

/*
 * Say where the copy begins, where its mapping ends, and how much of it is asked for; else why there is none. The list of
 * mappings may be in use, and within an interrupt the kernel looks at it once only: `high` is what it said then.
 */
static __always_inline int copy_span(struct copy_event *e, struct task_struct *task, __u64 sp, __u64 high)
{
	struct copy_bounds bounds = { .high = high };
	long err = high ? 0 : bpf_find_vma(task, sp, keep_copy_bounds, &bounds, 0);

	if (err || bounds.high <= sp)
		return err == -EBUSY ? COPY_CONTENDED : COPY_NO_STACK;
	e->start = (sp - RED_ZONE) & ~7ULL;
	if (e->start < bounds.low)
		e->start = bounds.low;
	e->end = bounds.high;
	e->asked = e->end - e->start;
	if (e->asked > capture_cfg.copy_bytes)
		e->asked = capture_cfg.copy_bytes;
	return COPY_TAKEN;
}

/* One page of a copy: what is in memory, else a bit that says that it is not. */
static long copy_page(__u32 i, void *data)
{
	struct copy_pages *pages = data;
	struct copy_event *e = pages->e;
	__u64 from = (pages->start & ~(COPY_PAGE - 1ULL)) + (__u64)i * COPY_PAGE;
	__u64 to = from + COPY_PAGE;
	__u64 offset, len;

	if (from < pages->start)
		from = pages->start;
	if (to > pages->start + pages->asked)
		to = pages->start + pages->asked;
	if (from >= to)
		return 1;
	offset = from - pages->start;
	len = to - from;
	barrier_var(offset);
	barrier_var(len);
	/* Behind copy_bytes there is room for a page. */
	if (offset >= capture_cfg.copy_bytes || len > COPY_PAGE)
		return 1;
	if (bpf_probe_read_user(&e->bytes[offset], len, (void *)from)) {
		__u64 word = i / 64;

		barrier_var(word);
		if (word < COPY_WORDS)
			e->missing[word] |= 1ULL << (i % 64);
	}
	return 0;
}

/* Read the memory of a copy. False: something is missing, which is not told since `partial` says that it may come. */
static __always_inline bool copy_memory(struct copy_event *e, bool partial)
{
	struct copy_pages pages = { .e = e, .start = e->start, .asked = e->asked };
	__u64 len = e->asked;

	barrier_var(len);
	if (len > capture_cfg.copy_bytes)
		len = capture_cfg.copy_bytes;
	__builtin_memset(e->missing, 0, sizeof(e->missing));
	if (!bpf_probe_read_user(e->bytes, len, (void *)e->start))
		return true;
	if (!partial)
		return false;
	bpf_loop(COPY_PAGES, copy_page, &pages, 0);
	return true;
}

/* What is put together of return addresses. */
struct copy_returns {
	struct copy_event *e;
	__u64 instance;
};

/* One return address that a uretprobe replaced, behind the bytes. */
static long copy_return(__u32 i, void *data)
{
	struct copy_returns *returns = data;
	struct return_instance *instance = (struct return_instance *)returns->instance;
	struct copy_event *e = returns->e;
	__u64 offset = e->asked + (__u64)i * sizeof(struct copy_return);
	struct copy_return own;

	if (!instance)
		return 1;
	own.place = BPF_CORE_READ(instance, stack);
	own.address = BPF_CORE_READ(instance, orig_ret_vaddr);
	barrier_var(offset);
	/* Behind copy_bytes there is room for a page, and for MAX_RETURNS of these in it. */
	if (offset > capture_cfg.copy_bytes + MAX_RETURNS * sizeof(own))
		return 1;
	__builtin_memcpy(&e->bytes[offset], &own, sizeof(own));
	e->n_returns = i + 1;
	returns->instance = (__u64)BPF_CORE_READ(instance, next);
	return 0;
}

/* What uprobes have changed of the stack, of which `ip` and `sp` are the registers. Gives the true stack pointer. */
static __always_inline __u64 take_returns(struct copy_event *e, struct task_struct *task, __u64 ip, __u64 sp)
{
	struct copy_returns returns = { .e = e };
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
	__u64 len = e->asked;
	__u64 size, n;

	barrier_var(len);
	if (len > capture_cfg.copy_bytes)
		len = capture_cfg.copy_bytes;
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
	int reason = copy_span(e, task, BPF_CORE_READ(regs, sp), high);

	if (reason)
		return reason == COPY_CONTENDED && !partial ? COPY_RETRY : reason;
	if (!copy_memory(e, partial))
		return COPY_RETRY;
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

/* Bring in the pages of which a copy of the current task's stack is to be made. May sleep. */
static __always_inline void fetch_copy(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 sp = BPF_CORE_READ(regs, sp);
	struct copy_bounds span = {};

	if (!capture_cfg.copy_bytes || bpf_find_vma(task, sp, keep_copy_bounds, &span, 0))
		return;
	if (span.low < sp - RED_ZONE)
		span.low = sp - RED_ZONE;
	if (span.high > span.low + capture_cfg.copy_bytes)
		span.high = span.low + capture_cfg.copy_bytes;
	bpf_loop(COPY_PAGES, fetch_page, &span, 0);
}

#endif
