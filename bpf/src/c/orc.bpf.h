/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel stack of a task that does not run, unwound by the kernel's own table (ORC, Documentation/arch/x86/
 * orc-unwinder.rst): what it says of an address is looked up once and remembered. The kernel's helper looks each frame up
 * anew, which is half of what a sample of time blocked costs.
 *
 * As arch/x86/kernel/unwind_orc.c does it, for frames of functions of the kernel proper up to the entry from user space:
 * that is where tasks wait. Whatever else there is, the helper unwinds: code of modules and of BPF programs, interrupted
 * code, return addresses that kretprobes and the function graph tracer replaced. Nothing is believed unseen: a rule is used
 * once a stack that it is part of came out as the helper's.
 *
 * x86-64 only. Elsewhere the kernel follows frame pointers, which is quick.
 */
#ifndef RAWSTACK_ORC_BPF_H
#define RAWSTACK_ORC_BPF_H

/* Where the kernel has its table, by the symbols that user space finds in kallsyms. All 0: not known. */
struct orc_tables {
	__u64 text; /* _stext */
	__u64 text_end; /* _etext */
	__u64 sched_text; /* functions that stacks leave out: __sched_text_start, */
	__u64 sched_text_end;
	__u64 lock_text; /* and __lock_text_start */
	__u64 lock_text_end;
	__u64 places; /* __start_orc_unwind_ip: sorted, each its distance from the address that the entry is for on */
	__u64 places_end;
	__u64 entries; /* __start_orc_unwind */
};

/* Take the kernel half of a task that does not run as the kernel unwinds it. */
static __always_inline void take_by_helper(struct tick_event *e, struct task_struct *task)
{
	keep_kernel(e, bpf_get_task_stack(task, e->frames, MAX_KERNEL_FRAMES * sizeof(__u64), 0));
}

#if defined(__TARGET_ARCH_x86)

struct orc_tables orc_tables = {};

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* arch/x86/include/asm/orc_types.h, as it is since 6.4. */
struct orc_row {
	__s16 sp_offset;
	__s16 bp_offset;
	__u16 bits; /* sp_reg: 4, bp_reg: 4, type: 3, signal: 1, lowest first */
};
enum { ORC_REG_UNDEFINED = 0, ORC_REG_PREV_SP = 1, ORC_REG_BP = 4, ORC_REG_SP = 5 };
enum { ORC_TYPE_END_OF_STACK = 1, ORC_TYPE_CALL = 2, ORC_TYPE_REGS = 3 };

/* Rules by return address: place by its low bits, one for each. Those that share a place take turns. */
#define ORC_RULES 4096

/* A rule in one word, which is read and written at once. 0: none. */
#define RULE_ADDRESS 0x7fffffffULL /* of the address, whose other bits are ones */
#define RULE_FRAME (1ULL << 31) /* the caller is found by what follows */
#define RULE_LAST (1ULL << 32) /* there is none */
/* Neither of these: the helper's. */
#define RULE_PROVEN (1ULL << 33)
#define RULE_LEFT_OUT (1ULL << 34) /* stacks do not show this function */
#define RULE_BY_BP (1ULL << 35) /* the frame's end is told from the frame pointer, else from the stack pointer */
#define RULE_END_SHIFT 36 /* so many words above */
#define RULE_REGISTERS (1ULL << 60) /* there, the last only if they are those of user space */
#define RULE_BP_SHIFT 48 /* so many words below the frame's end the frame pointer was saved; 0: it was not */
#define RULE_WORDS 0xfffULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ORC_RULES);
	__type(key, __u32);
	__type(value, __u64);
} orc_rules SEC(".maps");

/* Frames of one stack, those that are left out among them. */
#define ORC_FRAMES 64

struct orc_walk {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 high; /* end of the stack */
	__u64 *frames; /* leaf first */
	__u32 n;
	__u8 is_whole; /* the outermost frame was reached */
	__u8 has_unproven;
	__u8 proves; /* what is walked by is proven by that */
	__u8 refutes; /* or not to be used again, where it was not proven */
};

/* A search in the kernel's table: the last entry for `ip` or what is before it. */
struct orc_search {
	__u64 ip;
	__u32 first;
	__u32 end;
};

static __always_inline bool is_within(__u64 address, __u64 start, __u64 end)
{
	return address >= start && address < end;
}

static long halve(__u32 i, void *data)
{
	struct orc_search *search = data;
	__u32 middle = search->first + (search->end - search->first) / 2;
	__u64 place = orc_tables.places + middle * sizeof(__s32);
	__s32 distance;

	if (search->end - search->first <= 1 || bpf_probe_read_kernel(&distance, sizeof(distance), (void *)place))
		return 1;
	if (place + (__s64)distance <= search->ip)
		search->first = middle;
	else
		search->end = middle;
	return 0;
}

static __always_inline bool in_words(__s64 distance)
{
	return distance > 0 && distance % 8 == 0 && distance / 8 <= RULE_WORDS;
}

/* What the table says of code at `ip`. */
static __always_inline __u64 rule_of_row(const struct orc_row *row)
{
	__u32 sp_reg = row->bits & 15, bp_reg = row->bits >> 4 & 15, type = row->bits >> 8 & 7;
	__s64 end = row->sp_offset, bp = -(__s64)row->bp_offset;

	if (type == ORC_TYPE_END_OF_STACK)
		return RULE_LAST;
	if (type == ORC_TYPE_REGS && sp_reg == ORC_REG_SP && (!end || in_words(end)))
		return RULE_LAST | RULE_REGISTERS | (__u64)end / 8 << RULE_END_SHIFT;
	if (type != ORC_TYPE_CALL || (sp_reg != ORC_REG_SP && sp_reg != ORC_REG_BP) || !in_words(end))
		return 0;
	if (bp_reg == ORC_REG_UNDEFINED)
		bp = 0;
	else if (bp_reg != ORC_REG_PREV_SP || !in_words(bp))
		return 0;
	return RULE_FRAME | (sp_reg == ORC_REG_BP ? RULE_BY_BP : 0) | (__u64)end / 8 << RULE_END_SHIFT |
	       (__u64)bp / 8 << RULE_BP_SHIFT;
}

/* Look the return address `ip` up in the kernel's table. Not static: gone through once. */
__noinline __u64 find_rule(__u64 ip)
{
	struct orc_search search = {
		.ip = ip - 1, /* the call */
		.end = (orc_tables.places_end - orc_tables.places) / sizeof(__s32),
	};
	struct orc_row row;
	__u64 rule;

	bpf_loop(32, halve, &search, 0);
	if (bpf_probe_read_kernel(&row, sizeof(row), (void *)(orc_tables.entries + search.first * sizeof(row))))
		return 0;
	rule = rule_of_row(&row) | (ip & RULE_ADDRESS);
	if (is_within(ip, orc_tables.sched_text, orc_tables.sched_text_end) ||
	    is_within(ip, orc_tables.lock_text, orc_tables.lock_text_end))
		rule |= RULE_LEFT_OUT;
	return rule;
}

/* A word of a stack. What cannot be read is 0. */
static __always_inline __u64 stack_word(__u64 address)
{
	/* Of the types that begin with a number one that each kernel has. */
	struct timespec64 *word = bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct timespec64));

	return word->tv_sec;
}

/* Whether registers that were saved at `place` are of user space: at the top of the stack, but for a few words. */
static __always_inline bool is_of_user_space(__u64 place, __u64 high)
{
	return place + bpf_core_type_size(struct pt_regs) + 64 > high;
}

/* One frame. Ends with the outermost, and where the helper has to do it. */
static long orc_step(__u32 i, void *data)
{
	struct orc_walk *walk = data;
	__u64 ip = walk->ip;
	__u32 key = (ip ^ ip >> 12) % ORC_RULES;
	__u64 *known, rule, end, bp;
	__u32 n = walk->n;

	if (!is_within(ip, orc_tables.text, orc_tables.text_end))
		return 1;
	known = bpf_map_lookup_elem(&orc_rules, &key);
	if (!known)
		return 1;
	rule = *known;
	if (!rule || (rule ^ ip) & RULE_ADDRESS)
		*known = rule = find_rule(ip);
	if (!(rule & RULE_PROVEN)) {
		walk->has_unproven = 1;
		if (walk->proves)
			*known = rule | RULE_PROVEN;
		if (walk->refutes)
			*known = rule & ~(RULE_FRAME | RULE_LAST);
	}
	if (!(rule & RULE_LEFT_OUT) && n < ORC_FRAMES) {
		walk->frames[n] = ip;
		walk->n = n + 1;
	}
	end = (rule & RULE_BY_BP ? walk->bp : walk->sp) + (rule >> RULE_END_SHIFT & RULE_WORDS) * 8;
	if (rule & RULE_LAST)
		walk->is_whole = !(rule & RULE_REGISTERS) || is_of_user_space(end, walk->high);
	if (!(rule & RULE_FRAME))
		return 1;
	if (end <= walk->sp || end > walk->high || end % 8)
		return 1;
	walk->ip = stack_word(end - 8);
	bp = rule >> RULE_BP_SHIFT & RULE_WORDS;
	if (bp)
		walk->bp = stack_word(end - bp * 8);
	walk->sp = end;
	return 0;
}

/* Whether return addresses on the task's stack are those that were pushed. */
static __always_inline bool has_own_returns(struct task_struct *task)
{
	if (bpf_core_field_exists(task->rethooks) && task->rethooks.first)
		return false;
	if (bpf_core_field_exists(task->kretprobe_instances) && task->kretprobe_instances.first)
		return false;
	return !bpf_core_field_exists(task->curr_ret_stack) || task->curr_ret_stack <= 0;
}

/* From where the task was switched out to the outermost frame, into `frames`. */
static __always_inline void walk_orc(struct orc_walk *walk, struct task_struct *task, __u64 *frames)
{
	__u64 sp = task->thread.sp;
	struct inactive_task_frame *inner =
		bpf_rdonly_cast((void *)sp, bpf_core_type_id_kernel(struct inactive_task_frame));

	walk->ip = inner->ret_addr;
	walk->bp = inner->bp;
	walk->sp = sp + bpf_core_type_size(struct inactive_task_frame);
	walk->high = (__u64)task->stack + capture_cfg.thread_size;
	walk->frames = frames;
	walk->n = 0;
	walk->is_whole = 0;
	walk->has_unproven = 0;
	bpf_loop(ORC_FRAMES, orc_step, walk, 0);
}

struct comparison {
	const __u64 *a;
	const __u64 *b;
	__u32 n;
	__u32 differs;
};

static long compare_frame(__u32 i, void *data)
{
	struct comparison *both = data;
	__u64 at = i;

	barrier_var(at); /* let it be checked and used in one register: that is the one with bounds */
	if (at >= both->n || at >= ORC_FRAMES)
		return 1;
	both->differs = both->a[at] != both->b[at];
	return both->differs;
}

/* Whether the walk found the kernel half in `e`. */
static __always_inline bool is_same_walk(const struct orc_walk *walk, const struct tick_event *e)
{
	struct comparison both = { .a = walk->frames, .b = e->frames, .n = walk->n };

	bpf_loop(ORC_FRAMES, compare_frame, &both, 0);
	return walk->n == e->n_kernel && !both.differs;
}

/* The helper found the kernel half in `e`: whether the walk that was not proven finds the same, and what comes of that. */
static __always_inline void prove(struct tick_event *e, struct task_struct *task)
{
	__u64 *frames = &e->frames[MAX_KERNEL_FRAMES]; /* no user half is there yet */
	struct orc_walk walk = {};

	walk_orc(&walk, task, frames);
	walk.proves = is_same_walk(&walk, e);
	walk.refutes = !walk.proves;
	walk_orc(&walk, task, frames);
}

/* Take the kernel half of a task that does not run. */
static __always_inline void take_switched_out(struct tick_event *e, struct task_struct *task)
{
	struct orc_walk walk = {};
	bool is_whole;

	if (has_own_returns(task))
		walk_orc(&walk, task, e->frames);
	/* What is longer than stacks may be is the helper's to cut, which says so. */
	is_whole = walk.is_whole && walk.n < capture_cfg.max_kernel_frames;
	if (is_whole && !walk.has_unproven) {
		e->n_kernel = walk.n;
		return;
	}
	take_by_helper(e, task);
	if (is_whole && e->n_kernel) /* the helper fails now and then */
		prove(e, task);
}

#else

static __always_inline void take_switched_out(struct tick_event *e, struct task_struct *task)
{
	take_by_helper(e, task);
}

#endif
#endif
