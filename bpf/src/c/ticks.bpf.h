/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What makes a sample: ticks of perf events. Who is recorded is decided elsewhere. */
#ifndef RAWSTACK_TICKS_BPF_H
#define RAWSTACK_TICKS_BPF_H

SEC("perf_event")
int tick_deferred(void *ctx)
{
	struct capture_request request = { .weight = recorder_cfg.period };

	if (wanted())
		capture_reserve(ctx, &request, CAPTURE_DEFERRED);
	return 0;
}

SEC("perf_event")
int tick_immediate(void *ctx)
{
	struct capture_request request = { .weight = recorder_cfg.period };

	if (wanted())
		capture_reserve(ctx, &request, CAPTURE_IMMEDIATE);
	return 0;
}

SEC("perf_event")
int tick_plain(void *ctx)
{
	struct capture_request request = { .weight = recorder_cfg.period };

	if (wanted())
		capture_reserve(ctx, &request, CAPTURE_PLAIN);
	return 0;
}

#endif
