/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies of the current task's user stack, to be unwound elsewhere: the registers with which it returns to user space, and
 * memory of its spans (spans.bpf.h). Part of capture.bpf.h, whose maps it uses; knows nothing of frames.
 */
#ifndef RAWSTACK_COPY_BPF_H
#define RAWSTACK_COPY_BPF_H

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
