/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs send to user space through the ring buffer, and what user space tells them. */
#ifndef RAWSTACK_EVENT_H
#define RAWSTACK_EVENT_H

/* Frames of one half that are kept at most, whatever the configuration says. */
#define MAX_KERNEL_FRAMES 128
#define MAX_USER_FRAMES 1024
/* Frames of a user stack that are counted at most, to tell how deep a cut stack really is. */
#define MAX_WALK 2048
/* Programs that may interrupt each other on one CPU: task, interrupt, NMI, and one to spare. */
#define LEVELS 4
/* Bytes of a stack that are copied at most, and words of bits for its pages. */
#define MAX_COPY_BYTES (512 << 10)
#define COPY_WORDS 3
/*
 * Bytes before the end of a longer stack that are copied beside, at most. The data of a thread lie behind its first frame,
 * and take what its libraries want: 28 KiB in rustc, which has 22 KiB of frames below, and then one of 528 KiB.
 */
#define COPY_TAIL (64 << 10)

/* Return addresses of one task that uretprobes replace at most: the kernel's own limit. */
#define MAX_RETURNS 64

/* Numbers are part of the wire: append only. */
enum event_type {
	EVENT_TICK = 1,
	EVENT_USER = 2,
	EVENT_DROP = 3,
	EVENT_COPY = 4,
};

/* As rawstack_format::record::State. */
enum stack_state {
	STATE_COMPLETE = 0,
	STATE_TRUNCATED = 1,
	STATE_FAULTED = 2,
	STATE_EXITED = 3,
	STATE_EXECED = 4,
	STATE_SCHEDULE_FAILED = 5,
	STATE_DROPPED = 6,
	STATE_PENDING = 7,
};

/* As rawstack_format::record::DropReason. */
enum drop_reason {
	DROP_BUFFER_FULL = 0,
	DROP_CONTENDED = 1,
	DROP_UNWRITTEN = 2, /* user space only */
	DROP_USER_HALF = 3,
	DROP_REASONS = 4,
};

/* Bits of tick_event.flags. */
enum tick_flag {
	TICK_KERNEL_CUT = 1, /* the kernel half was cut at the limit */
	TICK_BLOCKED = 2, /* with STATE_PENDING: no EVENT_USER follows, recording ends while the task is blocked */
};

/* What became of the copy of a stack; up to the last as rawstack_format::copies::CopyLoss. */
enum copy_state {
	COPY_TAKEN = 0, /* or none was asked for */
	COPY_BUFFER_FULL = 1,
	COPY_CONTENDED = 2,
	COPY_NO_STACK = 4, /* nothing is mapped at the stack pointer */
	COPY_RETRY = 15, /* in the kernel only: a page is missing */
};

/* Where in tick_event.flags enum copy_state stands. */
#define TICK_COPY_SHIFT 4

/* Where the user code stands, as the caller knows it. */
enum at_flag {
	AT_ENTRY = 1, /* at a function's first instruction: its frame is not there yet */
	AT_PROBE = 2, /* at a uprobe, which changes registers before the return to user space */
	AT_ARMING = 4, /* inside the library: the return is just being hooked. Not the caller's to say */
};

/* A sample: its kernel half, and its user half unless that is still to come. */
struct tick_event {
	__u16 type;
	__u8 state; /* STATE_PENDING: an EVENT_USER of `owner` follows, or has just gone by */
	__u8 flags;
	__u32 cpu;
	__u64 time_ns;
	__u64 id;
	__u64 owner; /* ID whose user half this shares; often `id` */
	__u64 weight;
	__u32 pid;
	__u32 tid;
	__u32 event;
	__u32 user_depth; /* frames the user half really has; more than MAX_WALK: ~0 */
	__u16 n_kernel;
	__u16 n_user;
	__u32 at; /* AT_* bits */
	__u64 high; /* end of the stack's mapping, where the walk had to ask; in the kernel only */
	__u64 frames[MAX_KERNEL_FRAMES +
		     MAX_USER_FRAMES]; /* kernel, then user, leaf first; only the filled part is sent */
};

/* The outcome of every sample with this owner. */
struct user_header {
	__u16 type;
	__u8 state;
	__u8 copy; /* enum copy_state */
	__u32 user_depth;
	__u64 time_ns;
	__u64 owner;
	__u32 pid;
	__u32 tid;
	__u32 n_user;
	__u32 pad2;
};

/* The same with the user half; only the filled part is sent. */
struct user_event {
	struct user_header head;
	__u64 frames[MAX_USER_FRAMES];
};

/* A return address that a uretprobe replaced by its trampoline's. */
struct copy_return {
	__u64 place; /* the stack pointer at the function's first instruction */
	__u64 address;
};

/* Parts of a copy. */
enum copy_part {
	COPY_HEAD = 0, /* of the stack that the stack pointer is on, from there on */
	COPY_INTERRUPTED = 1, /* of the stack that a signal handler with a stack of its own has interrupted, likewise */
	COPY_OUTERMOST = 2, /* before the end of the last of these, where that is longer */
	COPY_SPANS = 3,
};

struct copy_span {
	__u64 start; /* a multiple of 8 */
	__u64 end; /* of the stack */
	__u64 asked; /* 0: there is none */
	__u64 missing
		[COPY_WORDS]; /* pages of 4096 bytes that were not in memory, from that of `start` on, a bit each */
};

/* A copy of a user stack; comes ahead of the user half that it is of. */
struct copy_event {
	__u16 type;
	__u8 n_registers;
	__u8 busy; /* in the kernel only, as the next */
	__u8 unread; /* enum copy_part: what could not be read; COPY_SPANS: that is not why */
	__u8 pad[3];
	__u32 n_returns;
	__u32 pad2;
	__u64 owner;
	__u32 pid;
	__u32 tid;
	__u64 time_ns;
	__u64 trampoline; /* where functions with uretprobes return to */
	__u64 vdso; /* where the vDSO is mapped; 0: not known */
	struct copy_span spans[COPY_SPANS];
	__u64 registers[33]; /* by DWARF number */
	/* As many as all spans asked for, and behind them n_returns times struct copy_return: the map is made larger. */
	__u8 bytes[4096];
};

/* A loss, sent as soon as there is room again on the CPU where it happened. */
struct drop_event {
	__u16 type;
	__u16 reason;
	__u32 cpu;
	__u64 count;
	__u64 from_ns;
	__u64 to_ns;
};

/* The user half that a thread owes. One for each thread that was sampled; removed when it ends. */
struct slot {
	struct bpf_task_work work;
	__u64 owner; /* 0: none yet */
	__u64 done; /* owner's user half was sent */
	__u64 start_time; /* tells a reused TID */
	__u64 exec_id; /* tells another program in the same thread */
	__u64 ip; /* user registers at the tick */
	__u64 sp; /* tells replaced registers, too */
	__u64 fp;
	__u64 fetch_from; /* what of the stack has to be brought in for a copy */
	__u64 fetch_to;
	__u32 at; /* AT_* bits */
	__u32 pad;
	__u32 pid;
	__u32 arming; /* between test and set: what interrupts there must not do the same */
};

/* One reason's losses on one CPU. */
struct loss {
	__u64 count;
	__u64 told; /* part of count that has gone into the stream */
	__u64 from_ns; /* of the part not yet told */
	__u64 to_ns;
};

/* What a CPU keeps between events. Read by user space at the end: the truth for reserved IDs. */
struct cpu_state {
	__u64 next[LEVELS]; /* IDs reserved, by level */
	__u64 unnumbered; /* samples that found no level free, or no room to wait; counted as reserved and dropped */
	__u64 busy[LEVELS];
	struct loss losses[DROP_REASONS];
	__u64 telling; /* losses are being put into the stream */
} __attribute__((aligned(64))); /* CPUs do not share cache lines */

/* Hits of one event on one CPU. */
struct hits {
	__u64 seen;
	__u64 told; /* of these, those that are in the weight of a sample */
};

/* Set before the programs are loaded. */
struct capture_config {
	__u64 wakeup_bytes; /* wake the reader when this much waits; 0: at each event */
	__u32 user_stacks; /* 0: none, 1: immediate, 2: deferred */
	__u32 kernel_stacks;
	__u32 max_user_frames;
	__u32 max_kernel_frames; /* the kernel's own limit: reaching it means cut */
	__u32 thread_size; /* bytes of a kernel stack: 16 KiB, or a page where those are larger */
	__u32 copy_bytes; /* of a user stack, a multiple of 4096; 0: none */
};

/* Kinds of programs whose runs are samples. */
enum event_kind {
	KIND_TICK = 0, /* overflow of a perf event */
	KIND_TRACEPOINT = 1,
	KIND_RAW = 2, /* raw tracepoint */
	KIND_PROBE = 3, /* uprobe, uretprobe, kprobe */
	KINDS = 4,
};

/* Events of one recording at most. */
#define MAX_EVENTS 64

/* What the attaching side tells a program of its event, in one number: COOKIE_* say where. */
#define COOKIE_EVENT 0xff /* number of the event */
#define COOKIE_AT_SHIFT 8 /* AT_* bits */
#define COOKIE_EVERY_SHIFT 32 /* each so manieth hit is a sample */

/* Set before the programs are loaded: the recorder's own part. */
struct recorder_config {
	__u64 lone_cookie[KINDS]; /* of the kind's only event, where the kernel has no cookies for it */
	__u32 has_cookie; /* bit KIND_*: the kernel has */
	__u32 pad;
};

#endif
