"""The rows about recording: size, cost, loss, start."""

from contextlib import nullcontext
from pathlib import Path

import measure
from measure import Background, Failed, median, run, spread
from peers import FOLDER, WORKLOADS, Perf, Rawstack, Samply
from table import Row

OUT = FOLDER / "recordings"
RECURSE = str(WORKLOADS / "recurse")
BUSY_HZ = 5000


def _out(peer_name: str, kind: str = "data") -> Path:
    OUT.mkdir(parents=True, exist_ok=True)
    suffix = "json.gz" if peer_name == "samply" else kind
    return OUT / f"{peer_name.replace(' ', '')}.{suffix}"


def _record(peer, frequency: int, target: list[str], seconds: float) -> tuple[measure.Usage, Path] | None:
    """One recording. A peer that breaks down is told and left out; we may not."""
    out = _out(peer.name)
    out.unlink(missing_ok=True)
    try:
        with peer.allowed() if isinstance(peer, Samply) else nullcontext():
            return run(peer.record_command(out, frequency, target, seconds)), out
    except Failed as failure:
        if isinstance(peer, Rawstack):
            raise
        print(f"{peer.name} failed, once: {str(failure).splitlines()[0]}")
        return None


def _present(peers: list) -> list:
    return [peer for peer in peers if getattr(peer, "program", True)]


def _split(by_length: dict[int, list[tuple[float, int]]]) -> tuple[float, float, float]:
    """From recordings of two lengths: samples of the longer, cost of one further sample, fixed cost."""
    (cost_a, count_a), (cost_b, count_b) = (
        tuple(median([pair[k] for pair in by_length[seconds]]) for k in (0, 1)) for seconds in sorted(by_length)
    )
    marginal = (cost_b - cost_a) / max(count_b - count_a, 1)
    return count_b, marginal, cost_b - marginal * count_b


def size(repeats: int) -> list[Row]:
    """Bytes a sample: of the whole file, and what each further sample adds to it."""
    ours = Rawstack()
    peers = [Perf("perf record -g", "-g"), Perf("perf record -g -z", "-g", "-z"), Samply()]
    short, long = 2, 6
    figures: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for _ in range(repeats):
        for seconds in (short, long):
            for peer in _present([ours, *peers]):
                if not (made := _record(peer, BUSY_HZ, ["--", RECURSE, str(seconds)], seconds)):
                    continue
                _, out = made
                pair = (out.stat().st_size, peer.samples(out))
                figures.setdefault(peer.name, {}).setdefault(seconds, []).append(pair)

    figures = {name: by for name, by in figures.items() if len(by) == 2}
    whole = {name: median([size / count for size, count in by[long]]) for name, by in figures.items()}
    parts = {name: _split(by) for name, by in figures.items()}
    marginal = {name: part[1] for name, part in parts.items()}
    details = {name: f"{count:.0f} samples, {fixed:.0f} bytes fixed" for name, (count, _, fixed) in parts.items()}
    what = f"one thread of recursive calls, {BUSY_HZ} Hz, user and kernel stacks"

    def row(name: str, values: dict[str, float], note: str) -> Row:
        others = {peer.name: values.get(peer.name) for peer in peers}
        value = values[ours.name]
        return Row(name, "bytes", value, others, "<= 4", value <= 4, details, [what, note])

    return [
        row("bytes a sample", whole, f"whole file / samples, {long} s; ours holds the kernel's symbols, theirs not"),
        row("bytes a further sample", marginal, f"difference of {long} s and {short} s / difference of samples"),
    ]


def recorder_cpu(repeats: int) -> list[Row]:
    """Processor time of the recorder's own process, a sample."""
    ours = Rawstack()
    peers = [Perf("perf record -g", "-g"), Perf("perf record -g -z", "-g", "-z")]
    short, long = 2, 8
    figures: dict[str, dict[int, list[tuple[float, int]]]] = {}
    with Background([RECURSE, "100000"]) as pid:
        for _ in range(repeats):
            for seconds in (short, long):
                for peer in _present([ours, *peers]):
                    if not (made := _record(peer, BUSY_HZ, ["-p", pid], seconds)):
                        continue
                    usage, out = made
                    pair = (usage.cpu, peer.samples(out))
                    figures.setdefault(peer.name, {}).setdefault(seconds, []).append(pair)

    figures = {name: by for name, by in figures.items() if len(by) == 2}

    def each(name: str) -> float | None:
        return median([cpu / count * 1e6 for cpu, count in figures[name][long]]) if name in figures else None

    details: dict[str, object] = {}
    for name, by_length in figures.items():
        _, marginal, fixed = _split(by_length)
        noise = spread([cpu for cpu, _ in by_length[long]])
        details[name] = f"{marginal * 1e6:.2f} us a further sample + {fixed * 1e3:.0f} ms fixed, spread {noise:.0%}"
    value, base = each("rawstack"), each("perf record -g -z")
    met = value <= 0.5 * base if value is not None and base else None
    return [Row(
        "recorder CPU a sample", "us", value, {p.name: each(p.name) for p in peers},
        "<= 0.5 x perf record -g -z", met, details,
        [f"user + system of the recorder's process, start included, {long} s at {BUSY_HZ} Hz"],
    )]


def slow_down(repeats: int) -> list[Row]:
    """How much less the recorded thread gets done."""
    ours = Rawstack()
    peers = [Perf("perf record -g", "-g"), Perf("perf record -g -z", "-g", "-z")]
    seconds = 4
    alone: list[float] = []
    done: dict[str, list[float]] = {}
    for _ in range(repeats):
        alone.append(int(run([RECURSE, str(seconds)]).stdout))
        for peer in _present([ours, *peers]):
            if not (made := _record(peer, BUSY_HZ, ["--", RECURSE, str(seconds)], seconds)):
                continue
            usage, _ = made
            done.setdefault(peer.name, []).append(int(usage.stdout.split()[0]))

    def percent(name: str) -> float | None:
        return (median(alone) / median(done[name]) - 1) * 100 if name in done else None

    value, base = percent("rawstack"), percent("perf record -g")
    return [Row(
        "slow-down of the workload", "%", value, {p.name: percent(p.name) for p in peers},
        "<= 1 x perf record -g", value <= base if base is not None else None,
        {"spread alone": f"{spread(alone):.1%}", **{f"spread {n}": f"{spread(v):.1%}" for n, v in done.items()}},
        [f"{repeats} interleaved runs of {seconds} s at {BUSY_HZ} Hz, median"],
    )]


def memory(_repeats: int) -> list[Row]:
    """Peak memory with 100,000 distinct stacks."""
    ours, peer = Rawstack(), Perf("perf record -g -z", "-g", "-z")
    peaks: dict[str, float | None] = {}
    details: dict[str, object] = {}
    with Background([str(WORKLOADS / "many_stacks"), "2", "100000"]) as pid:
        for one in _present([ours, peer]):
            if not (made := _record(one, 10000, ["-p", pid], 7)):
                continue
            usage, out = made
            peaks[one.name] = usage.peak_rss / 2**20
            details[f"{one.name} samples"] = one.samples(out)
    stacks = ours.info(_out("rawstack"))["stacks"]
    details["rawstack distinct stacks"] = stacks
    value = peaks["rawstack"]
    return [Row(
        "peak memory, 100000 distinct stacks", "MiB", value, {peer.name: peaks.get(peer.name)}, "<= 64 MiB",
        value <= 64 and stacks >= 100_000, details, ["VmHWM of the recorder; each sample has its own 41-frame stack"],
    )]


def loss(_repeats: int) -> list[Row]:
    """Samples lost at 20 kHz on each of two busy CPUs."""
    ours, peer = Rawstack(), Perf("perf record -g", "-g")
    seconds, frequency = 5, 20000
    lost: dict[str, float] = {}
    details: dict[str, object] = {}
    for one in _present([ours, peer]):
        if not (made := _record(one, frequency, ["--", str(WORKLOADS / "threads"), "2", str(seconds)], seconds)):
            continue
        _, out = made
        lost[one.name] = one.lost(out)
        details[f"{one.name} samples"] = f"{one.samples(out)} of {2 * seconds * frequency} ticks asked for"
    value = lost["rawstack"]
    return [Row(
        "samples lost at 20 kHz on 2 busy CPUs", "samples", value, {peer.name: lost.get(peer.name)}, "0",
        value == 0, details, ["dropped and schedule_failed IDs and told drops; perf: LOST and LOST_SAMPLES"],
    )]


def first_sample(repeats: int) -> list[Row]:
    """From the recorder's start to its first sample."""
    ours, peer = Rawstack(), Perf("perf record -g", "-g")
    delays: dict[str, list[float]] = {}
    with Background([str(WORKLOADS / "threads"), "2", "100000"]) as pid:
        for _ in range(repeats):
            for one in _present([ours, peer]):
                if not (made := _record(one, 997, ["-p", pid], 1)):
                    continue
                usage, out = made
                delays.setdefault(one.name, []).append((one.first_time(out) - usage.start) * 1e3)
    value = median(delays["rawstack"])
    return [Row(
        "start to first sample", "ms", value, {peer.name: median(delays[peer.name]) if peer.name in delays else None},
        "<= 150 ms", value <= 150, {name: [round(d) for d in v] for name, v in delays.items()},
        ["time of the first sample less the time before the recorder was started, both monotonic; 2 busy CPUs, 997 Hz"],
    )]


ROWS = {
    "size": size,
    "cpu": recorder_cpu,
    "slow-down": slow_down,
    "memory": memory,
    "loss": loss,
    "first-sample": first_sample,
}
