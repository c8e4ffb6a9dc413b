// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Logs a stack ID at each entry (and, on request, exit) of one system call in one process. */
#include "capture.bpf.h"

#define MAX_LOGGED 4096

const volatile long syscall_nr = 0;
const volatile __u32 at_exit_too = 0;

__u32 target = 0;
__u32 count = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LOGGED);
	__type(key, __u32);
	__type(value, __u64);
} logged SEC(".maps");

static __always_inline void log_stack(void *ctx)
{
	struct capture_request request = { .weight = 1 };
	__u32 at = __sync_fetch_and_add(&count, 1);
	__u64 id = capture_reserve(ctx, &request, CAPTURE_DEFERRED);

	bpf_map_update_elem(&logged, &at, &id, BPF_ANY);
}

static __always_inline bool wanted(void)
{
	return bpf_get_current_pid_tgid() >> 32 == target;
}

/* sys_enter(regs, id) */
SEC("raw_tp/sys_enter")
int on_enter(struct bpf_raw_tracepoint_args *ctx)
{
	if (wanted() && ctx->args[1] == syscall_nr)
		log_stack(ctx);
	return 0;
}

/* sys_exit(regs, ret): the same kernel entry, so the same user half. */
SEC("raw_tp/sys_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	if (at_exit_too && wanted() && count)
		log_stack(ctx);
	return 0;
}

DEFINE_CAPTURE_HOOKS()

char LICENSE[] SEC("license") = "Dual BSD/GPL";
