/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who is recorded, decided as things happen. Knows no events. */
#ifndef RAWSTACK_TARGETS_BPF_H
#define RAWSTACK_TARGETS_BPF_H

#define MAX_CPUS 8192
#define MAX_CGROUP_LEVELS 64
/* Cgroup hierarchies that are looked through for the one of a number; a kernel has some fifteen. */
#define MAX_HIERARCHIES 64

/* Where in a hierarchy a wanted cgroup lies. */
struct cgroup_level {
	__u32 hierarchy; /* 0: the unified one */
	__u32 level; /* 0: its root */
};

/* IDs are unique within a hierarchy only. */
struct cgroup_key {
	__u64 id;
	__u32 hierarchy;
	__u32 pad;
};

/* Set before the programs are loaded. */
struct target_config {
	__u32 by_process; /* only tasks of `targets`, or ... */
	__u32 by_thread; /* ... of `target_threads` */
	__u32 by_cpu; /* only on CPUs whose bit is set in `cpus` */
	__u32 n_cgroup_levels; /* only tasks in or below `target_cgroups`; 0: in any */
	struct cgroup_level cgroup_levels[MAX_CGROUP_LEVELS];
	__u64 cpus[MAX_CPUS / 64];
};

const volatile struct target_config target_cfg = {};

/* Values of `targets`. */
enum target_since {
	TARGET_NOW = 1,
	TARGET_AT_EXEC = 2, /* from its next exec on: a process that is still to become the command */
};

/* Processes that are recorded. Key: PID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} targets SEC(".maps");

/* Threads that are recorded, and not the whole of their process. Key: TID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} target_threads SEC(".maps");

/* Cgroups that are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct cgroup_key);
	__type(value, __u8);
} target_cgroups SEC(".maps");

/* Processes and threads that should be followed and found no room. Read by user space. */
__u64 targets_lost = 0;

static __always_inline bool is_target_process(__u32 pid)
{
	__u8 *since = bpf_map_lookup_elem(&targets, &pid);

	return since && *since == TARGET_NOW;
}

static __always_inline bool is_target_thread(__u32 tid)
{
	return target_cfg.by_thread && bpf_map_lookup_elem(&target_threads, &tid);
}

static __always_inline bool is_target(__u32 pid, __u32 tid)
{
	if (!target_cfg.by_process && !target_cfg.by_thread)
		return true;
	return (target_cfg.by_process && is_target_process(pid)) || is_target_thread(tid);
}

static __always_inline bool on_target_cpu(__u64 cpu)
{
	__u64 word = cpu / 64;

	if (!target_cfg.by_cpu)
		return true;
	barrier_var(word); /* let it be checked and used in one register: that is the one with bounds */
	if (word >= MAX_CPUS / 64)
		return false;
	return target_cfg.cpus[word] >> (cpu & 63) & 1;
}

/*
 * The address of the task's cgroup in the hierarchy of this number, through the links that every set of cgroups has:
 * hierarchies without a controller (name=systemd) are found as all others are. Not static: gone through once.
 */
__noinline __u64 linked_cgroup(__u64 task_address, __u32 hierarchy)
{
	struct task_struct *task = (struct task_struct *)task_address;
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	__u64 to_entry = bpf_core_field_offset(struct cgrp_cset_link, cgrp_link);
	__u64 head = (__u64)set + bpf_core_field_offset(struct css_set, cgrp_links);
	__u64 entry = (__u64)BPF_CORE_READ(set, cgrp_links.next);
	struct cgrp_cset_link *link;
	int i;

	for (i = 0; i < MAX_HIERARCHIES && entry && entry != head; i++) {
		link = (struct cgrp_cset_link *)(entry - to_entry);
		if (BPF_CORE_READ(link, cgrp, root, hierarchy_id) == hierarchy)
			return (__u64)BPF_CORE_READ(link, cgrp);
		entry = (__u64)BPF_CORE_READ(link, cgrp_link.next);
	}
	return 0;
}

/* The ID of the cgroup's ancestor at this level, itself included; 0 when it lies above. */
static __always_inline __u64 ancestor_id(struct cgroup *cgroup, __u32 level)
{
	__u64 at = (__u64)cgroup;
	struct cgroup *ancestor;
	__u64 id = 0;

	if (level > BPF_CORE_READ(cgroup, level))
		return 0;
	if (bpf_core_field_exists(struct cgroup, ancestors)) { /* 6.1 and newer */
		at += bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(ancestor);
		if (bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)at))
			return 0;
		return BPF_CORE_READ(ancestor, kn, id);
	}
	at += bpf_core_field_offset(struct cgroup___before_6_1, ancestor_ids) + level * sizeof(id);
	if (bpf_probe_read_kernel(&id, sizeof(id), (void *)at))
		return 0;
	return id;
}

/* Whether the task is in a wanted cgroup, or below one. Not static: gone through once. */
__noinline int in_target_cgroup(__u64 task_address)
{
	struct task_struct *task = (struct task_struct *)task_address;
	struct cgroup_key key = {};
	struct cgroup *cgroup;
	__u32 i;

	for (i = 0; i < MAX_CGROUP_LEVELS && i < target_cfg.n_cgroup_levels; i++) {
		key.hierarchy = target_cfg.cgroup_levels[i].hierarchy;
		if (key.hierarchy)
			cgroup = (struct cgroup *)linked_cgroup(task_address, key.hierarchy);
		else
			cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
		if (!cgroup)
			continue;
		key.id = ancestor_id(cgroup, target_cfg.cgroup_levels[i].level);
		if (key.id && bpf_map_lookup_elem(&target_cgroups, &key))
			return 1;
	}
	return 0;
}

/* Whether what happens here and now, in the current task, is recorded. */
static __always_inline bool wanted(void)
{
	__u64 task = bpf_get_current_pid_tgid();

	if (!on_target_cpu(bpf_get_smp_processor_id()) || !is_target(task >> 32, task))
		return false;
	return !target_cfg.n_cgroup_levels || in_target_cgroup(bpf_get_current_task());
}

/* The same of a task at this address that does not run, on the CPU where it last did. */
static __always_inline bool wanted_task(__u64 address)
{
	struct task_struct *task = (struct task_struct *)address;

	if (!on_target_cpu(BPF_CORE_READ(task, wake_cpu)))
		return false;
	if (!is_target(BPF_CORE_READ(task, tgid), BPF_CORE_READ(task, pid)))
		return false;
	return !target_cfg.n_cgroup_levels || in_target_cgroup(address);
}

static __always_inline void add_target(void *map, __u32 id)
{
	__u8 now = TARGET_NOW;

	if (bpf_map_update_elem(map, &id, &now, BPF_ANY))
		__sync_fetch_and_add(&targets_lost, 1);
}

/* sched_process_fork(parent, child): what a target makes is one from its first instruction on. */
SEC("raw_tp/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid);
	__u32 to = BPF_CORE_READ(child, tgid);
	bool by_thread = is_target_thread(BPF_CORE_READ(parent, pid));

	if (from != to && (by_thread || is_target_process(from)))
		add_target(&targets, to);
	else if (from == to && by_thread)
		add_target(&target_threads, BPF_CORE_READ(child, pid));
	return 0;
}

/*
 * sched_process_exec(task, old_pid, bprm): a process that waits to become the command has become it; and a thread that
 * executes another program takes over the TID of its process's first thread.
 */
SEC("raw_tp/sched_process_exec")
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 old_tid = ctx->args[1];
	__u8 *since = bpf_map_lookup_elem(&targets, &pid);

	if (since && *since == TARGET_AT_EXEC)
		*since = TARGET_NOW;
	if (old_tid != pid && is_target_thread(old_tid)) {
		bpf_map_delete_elem(&target_threads, &old_tid);
		add_target(&target_threads, pid);
	}
	return 0;
}

/* sched_process_exit(task): what ended is no target any more, or whoever gets its number next would be. */
SEC("raw_tp/sched_process_exit")
int forget_exited(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32;
	__u32 tid = id;

	if (target_cfg.by_thread)
		bpf_map_delete_elem(&target_threads, &tid);
	if (!BPF_CORE_READ(task, signal, live.counter))
		bpf_map_delete_elem(&targets, &pid);
	return 0;
}

#endif
