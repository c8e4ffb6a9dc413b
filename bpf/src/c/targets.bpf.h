/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who is recorded. Knows no events. */
#ifndef RAWSTACK_TARGETS_BPF_H
#define RAWSTACK_TARGETS_BPF_H

/* Processes that are recorded, when not all are. Key: PID. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} targets SEC(".maps");

static __always_inline bool wanted(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	return !recorder_cfg.filter || bpf_map_lookup_elem(&targets, &pid);
}

/* sched_process_fork(parent, child): children of a recorded process are recorded from their first instruction. */
SEC("raw_tp/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid);
	__u32 to = BPF_CORE_READ(child, tgid);
	__u8 one = 1;

	if (from != to && bpf_map_lookup_elem(&targets, &from))
		bpf_map_update_elem(&targets, &to, &one, BPF_ANY);
	return 0;
}

/* sched_process_exit(task): a process is no target any more when its last thread ends, or a reused PID would be. */
SEC("raw_tp/sched_process_exit")
int forget_exited(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (!BPF_CORE_READ(task, signal, live.counter))
		bpf_map_delete_elem(&targets, &pid);
	return 0;
}

#endif
