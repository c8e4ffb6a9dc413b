/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types and constants that the programs touch. CO-RE relocates each field, so only names and kinds
 * must be right, not positions; a whole vmlinux.h would be 100,000 lines for these hundred.
 */
#ifndef RAWSTACK_KERNEL_H
#define RAWSTACK_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024 };
enum { BPF_F_USER_STACK = 256 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };

/* include/linux/sched.h: stable since long before 5.8, but for the last (6.4) */
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/* errno of the kernel */
#define EBUSY 16

/* Opaque to programs; the kernel finds it in a map's value by this name. */
struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Whole, not only named: libbpf compares kfunc prototypes and takes a forward declaration for another kind. */
struct bpf_map {
	__u32 id;
};

/* Its page holds the code that a uretprobe returns to, and instructions that uprobes execute elsewhere. */
struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

/* Only asked whether it is there: it came with 6.15. */
struct bpf_res_spin_lock {
	__u32 val;
};

/* Of both architectures the one member that they have in common. */
typedef struct {
	void *vdso;
} mm_context_t;

struct mm_struct {
	mm_context_t context;
	struct uprobes_state uprobes_state;
	unsigned long start_stack; /* the stack pointer with which the program began */
	unsigned long arg_start;
};

/* Where user space has what belongs to the thread, as last noted. */
struct thread_struct {
#if defined(__TARGET_ARCH_x86)
	unsigned long sp; /* of the kernel, while the task does not run */
	unsigned long fsbase;
#else
	struct {
		unsigned long tp_value;
	} uw;
#endif
};

/* What a task that does not run has at its kernel stack pointer. */
struct inactive_task_frame {
	unsigned long bp;
	unsigned long ret_addr;
};

struct timespec64 {
	__s64 tv_sec;
};

struct llist_node {
	struct llist_node *next;
};

struct llist_head {
	struct llist_node *first;
};

/* A return address that a uretprobe replaced. Innermost first. */
struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	unsigned long vaddr;
	unsigned long xol_vaddr;
	struct return_instance *return_instances;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct list_head {
	struct list_head *next;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_root *root;
	struct cgroup *ancestors[]; /* 6.1 and newer */
};

struct cgroup___before_6_1 {
	int level;
	__u64 ancestor_ids[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
	struct list_head cgrp_links;
};

struct cgrp_cset_link {
	struct cgroup *cgrp;
	struct list_head cgrp_link;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

/* Where tasks that do not run say why not, before 5.14. */
struct task_struct___before_5_14 {
	long state;
};

struct task_struct {
	unsigned int flags;
	unsigned int __state;
	int on_cpu;
	int wake_cpu; /* of a task that does not run: where it last did */
	unsigned long nvcsw;
	unsigned long nivcsw;
	int pid;
	int tgid;
	__u64 start_time;
	__u64 self_exec_id;
	void *stack;
	struct mm_struct *mm;
	struct signal_struct *signal;
	unsigned long sas_ss_sp; /* the stack for signal handlers */
	unsigned long sas_ss_size;
	struct thread_struct thread;
	struct uprobe_task *utask;
	struct css_set *cgroups;
	struct llist_head rethooks; /* return addresses that kretprobes replaced */
	struct llist_head kretprobe_instances; /* the same, where there are no rethooks */
	int curr_ret_stack; /* those that the function graph tracer replaced: none where it is not above 0 */
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long long regs[31];
	unsigned long long sp;
	unsigned long long pc;
	unsigned long long pstate;
};
#else
#error "no user registers known for this architecture"
#endif

/* Only asked whether it has a member. */
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
	BPF_FUNC_find_vma = 180,
};

#pragma clang attribute pop

/* Context of perf event programs, include/uapi/linux/bpf_perf_event.h: never relocated. */
struct bpf_perf_event_data {
#if defined(__TARGET_ARCH_x86)
	__u64 regs[21];
#else
	__u64 regs[34];
#endif
	__u64 sample_period;
	__u64 addr;
};

/* Context of raw tracepoint programs: never relocated. */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#endif
