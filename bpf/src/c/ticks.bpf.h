/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What makes a sample: overflows of perf events, hits of tracepoints and probes. One program serves all events of its
 * kind; the cookie of the attachment tells them apart. Who is recorded is decided elsewhere.
 */
#ifndef RAWSTACK_TICKS_BPF_H
#define RAWSTACK_TICKS_BPF_H

/* Between a raw tracepoint and its program's own frame, both counted: what runs programs. */
#define RAW_FRAMES 2

/* Key: number of the event. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_EVENTS);
	__type(key, __u32);
	__type(value, struct hits);
} hit_counts SEC(".maps");

static __always_inline __u64 cookie_of(void *ctx, const enum event_kind kind)
{
	if (recorder_cfg.has_cookie & (1 << kind))
		return bpf_get_attach_cookie(ctx);
	return recorder_cfg.lone_cookie[kind];
}

/*
 * The weight of this hit, 0 when it is not the one to take. A program that interrupts this one, or takes its CPU, may
 * count between the lines: then a sample comes early, and the next one later by as much.
 */
static __always_inline __u64 hit_weight(__u64 cookie)
{
	__u64 every = cookie >> COOKIE_EVERY_SHIFT;
	__u32 event = cookie & COOKIE_EVENT;
	struct hits *hits;

	if (every <= 1)
		return 1;
	hits = bpf_map_lookup_elem(&hit_counts, &event);
	if (!hits)
		return 0; /* cannot happen: numbers are below MAX_EVENTS */
	__sync_fetch_and_add(&hits->seen, 1);
	if ((__s64)(hits->seen - hits->told) < (__s64)every)
		return 0;
	__sync_fetch_and_add(&hits->told, every);
	return every;
}

static __always_inline void take_tick(struct bpf_perf_event_data *ctx, const enum capture_how how)
{
	struct capture_request request = {};

	if (!wanted())
		return;
	request.weight = ctx->sample_period;
	request.event = cookie_of(ctx, KIND_TICK) & COOKIE_EVENT;
	capture_reserve(ctx, &request, how);
}

static __always_inline void take_hit(void *ctx, const enum event_kind kind, const enum capture_how how)
{
	struct capture_request request = {};
	__u64 cookie;

	if (!wanted())
		return;
	cookie = cookie_of(ctx, kind);
	request.weight = hit_weight(cookie);
	request.event = cookie & COOKIE_EVENT;
	if (kind == KIND_RAW)
		request.skip = RAW_FRAMES;
	if (kind == KIND_PROBE) /* the same bits, lower */
		request.at = cookie >> COOKIE_AT_SHIFT & (AT_ENTRY | AT_PROBE);
	if (request.weight)
		capture_reserve(ctx, &request, how);
}

/* One program for each way of capture. */
#define DEFINE_EVENT(section, name, take, ...)                                                                         \
	SEC(section)                                                                                                   \
	int name##_deferred(void *ctx)                                                                                 \
	{                                                                                                              \
		take(ctx, ##__VA_ARGS__, CAPTURE_DEFERRED);                                                            \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC(section)                                                                                                   \
	int name##_immediate(void *ctx)                                                                                \
	{                                                                                                              \
		take(ctx, ##__VA_ARGS__, CAPTURE_IMMEDIATE);                                                           \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC(section)                                                                                                   \
	int name##_plain(void *ctx)                                                                                    \
	{                                                                                                              \
		take(ctx, ##__VA_ARGS__, CAPTURE_PLAIN);                                                               \
		return 0;                                                                                              \
	}

DEFINE_EVENT("perf_event", tick, take_tick)
DEFINE_EVENT("tracepoint", tracepoint, take_hit, KIND_TRACEPOINT)
DEFINE_EVENT("raw_tp", raw, take_hit, KIND_RAW)
DEFINE_EVENT("kprobe", probe, take_hit, KIND_PROBE)

#endif
