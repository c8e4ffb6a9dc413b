"""The rows about a recorder that is left running: what it costs at a low rate, and what becomes of it under churn."""

import ctypes
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import Background, Failed, Family, median, run
from peers import FOLDER, WORKLOADS, Perf, Rawstack
from table import Row

OUT = FOLDER / "recordings"
THREADS = str(WORKLOADS / "threads")
LOW_HZ = 99
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
BPF_SYSCALL = 321  # x86-64
PROG_GET_NEXT_ID, PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 11, 13, 15

# A recording as short as this is little more than start and end; the median of so many counts.
START_SECONDS, STARTS = 2.0, 5

# Set from the command line.
cost_seconds = 60.0
churn_seconds = 30.0


def _out(name: str) -> Path:
    OUT.mkdir(parents=True, exist_ok=True)
    out = OUT / f"{name}.data"
    out.unlink(missing_ok=True)
    return out


def _everything(peer, seconds: float, out: Path) -> list[str]:
    return peer.record_command(out, LOW_HZ, ["-a"], seconds)


def cost(_repeats: int) -> list[Row]:
    """Processor time and memory of a whole recording of the whole machine at 99 Hz, both CPUs busy."""
    ours, peer = Rawstack(), Perf("perf record -g", "-g")
    percent: dict[str, float | None] = {}
    steady: dict[str, float | None] = {}
    memory: dict[str, float | None] = {}
    details: dict[str, object] = {}
    with Background([THREADS, str(os.cpu_count()), "100000"]):
        for one in [ours, *([peer] if peer.program else [])]:
            out = _out(one.name.replace(" ", ""))
            starts = []
            for _ in range(STARTS):
                starts.append(run(_everything(one, START_SECONDS, out), deadline=START_SECONDS + 60))
                out.unlink()
            start_cpu, start_wall = median([start.cpu for start in starts]), median([start.wall for start in starts])
            usage = run(_everything(one, cost_seconds, out), deadline=cost_seconds + 60)
            steady[one.name] = (usage.cpu - start_cpu) / (usage.wall - start_wall) * 100
            percent[one.name] = usage.cpu / usage.wall * 100
            memory[one.name] = usage.family_peak / 2**20
            samples = one.samples(out)
            details[one.name] = (
                f"{samples} samples, {usage.cpu * 1e3:.0f} ms of CPU, {usage.cpu / samples * 1e6:.1f} us a sample, "
                f"file {out.stat().st_size} bytes"
            )
    what = f"whole recording of {cost_seconds:g} s, start and end included; every process, {LOW_HZ} Hz on each CPU"
    value, held = percent[ours.name], memory[ours.name]
    return [
        Row(f"CPU of a recording at {LOW_HZ} Hz", "% of one CPU", value, {peer.name: percent.get(peer.name)},
            "<= 0.3 %", value <= 0.3, details, [what, "user + system of the recorder and its helpers"]),
        Row(f"CPU of each further second at {LOW_HZ} Hz", "% of one CPU", steady[ours.name],
            {peer.name: steady.get(peer.name)}, "<= 0.3 %", steady[ours.name] <= 0.3, {},
            [f"the same recording, less one of {START_SECONDS:g} s (median of {STARTS}): what one that goes on for long comes to"]),
        Row(f"memory of a recording at {LOW_HZ} Hz", "MiB", held, {peer.name: memory.get(peer.name)},
            "<= 32 MiB", held <= 32, {}, [what, "the most that the recorder and its helpers had in memory together"]),
    ]


class _Programs:
    """BPF programs of the kernel, with how often they ran and for how long."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)

    def _bpf(self, command: int, attribute: ctypes.Array) -> int:
        return self.libc.syscall(BPF_SYSCALL, command, attribute, ctypes.sizeof(attribute))

    def _ids(self) -> Iterator[int]:
        last = 0
        while True:
            attribute = (ctypes.c_uint32 * 3)(last, 0, 0)
            if self._bpf(PROG_GET_NEXT_ID, attribute) < 0:
                return
            last = attribute[1]
            yield last

    def read(self) -> dict[int, tuple[str, int, int]]:
        """By ID: name, runs, nanoseconds."""
        programs = {}
        for number in self._ids():
            fd = self._bpf(PROG_GET_FD_BY_ID, (ctypes.c_uint32 * 3)(number, 0, 0))
            if fd < 0:
                continue
            # struct bpf_prog_info of include/uapi/linux/bpf.h: name at 64, run_time_ns at 192, run_cnt at 200.
            info = (ctypes.c_uint8 * 224)()
            attribute = (ctypes.c_uint64 * 2)(fd | 224 << 32, ctypes.addressof(info))
            if self._bpf(OBJ_GET_INFO_BY_FD, attribute) == 0:
                raw = bytes(info)
                name = raw[64:80].split(b"\0")[0].decode(errors="replace")
                time_ns, runs = (int.from_bytes(raw[at : at + 8], "little") for at in (192, 200))
                programs[number] = (name, runs, time_ns)
            os.close(fd)
        return programs


@contextmanager
def _counting() -> Iterator[None]:
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


# How often the recorder that is measured and the one that watches it look: never in step for long.
KERNEL_HZ, WATCH_HZ = 5000, 1999
KERNEL_SECONDS = 8
# As the kernel names it among its symbols: what takes a user half on the return to user space.
CALLBACK = '_on_return"'


def _programs_of(process: subprocess.Popen) -> set[int]:
    """IDs of the BPF programs that a process has loaded, once it has recorded for a moment."""
    found: set[int] = set()
    until = time.monotonic() + 30
    while not found and process.poll() is None and time.monotonic() < until:
        time.sleep(1)
        for descriptor in Path(f"/proc/{process.pid}/fdinfo").glob("*"):
            try:
                found.update(map(int, re.findall(r"^prog_id:\s*(\d+)", descriptor.read_text(), re.MULTILINE)))
            except OSError:
                continue
    return found


@dataclass
class _InKernel:
    """What a recording took in the kernel."""

    programs: dict[str, tuple[int, int]]  # runs and nanoseconds, by the kernel's own statistics
    callbacks: int
    callback_us: float | None  # of one; None where there were too few to tell
    user_us: float  # of a sample, in user space, start included


def _samples(ours: Rawstack, out: Path) -> list[dict]:
    return [json.loads(line) for line in run([str(ours.resolve), "dump", "--stacks", "frame-pointers", str(out)]).stdout.splitlines()]


def _callback_us(ours: Rawstack, out: Path, watched: Path) -> tuple[int, float | None]:
    """Callbacks while they were watched, and how long one took: the kernel's statistics leave them out, so a second
    recorder says in which part of all samples it met one."""
    seen = _samples(ours, watched)
    times = [sample["time_ns"] for sample in seen]
    met = sum(CALLBACK in json.dumps(sample["frames"]) for sample in seen)
    # A tick in the kernel leaves the user half to the return; one in user code takes it at once.
    in_kernel = (
        sample for sample in _samples(ours, out)
        if min(times) <= sample["time_ns"] <= max(times) and sample["frames"] and sample["frames"][0]["kind"] == "kernel"
    )
    callbacks = sum(any(frame["kind"] == "user" for frame in sample["frames"]) for sample in in_kernel)
    return callbacks, met / WATCH_HZ / callbacks * 1e6 if callbacks > 1000 else None


def _in_kernel(load: list[str], *options: str) -> _InKernel:
    """Of a recording of the whole machine, `load` on each CPU: so each tick is a sample."""
    ours, watcher = Rawstack("rawstack", *options), Rawstack("watcher", "--user-stacks", "off")
    out, watched = _out("kernel"), _out("watched")
    programs = _Programs()
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.enter_context(Background(load))
        stack.enter_context(_counting())
        recorder = subprocess.Popen(ours.record_command(out, KERNEL_HZ, ["-a"], KERNEL_SECONDS))
        mine = _programs_of(recorder)
        run(watcher.record_command(watched, WATCH_HZ, ["-a"], KERNEL_SECONDS / 2))
        # Shortly before it ends: its programs go with it.
        ran = {name: (runs, ns) for number, (name, runs, ns) in programs.read().items() if number in mine and runs}
        _, status, usage = os.wait4(recorder.pid, 0)
        if status:
            raise Failed(f"rawstack-record: status {status}")
    if not ran:
        raise Failed("no program of ours ran")
    user = (usage.ru_utime + usage.ru_stime) / ours.samples(out) * 1e6
    return _InKernel(ran, *_callback_us(ours, out, watched), user)


def kernel_cost(_repeats: int) -> list[Row]:
    """What one tick and one callback take in the kernel, beside what a sample takes in user space."""
    in_user_code = [THREADS, "1", "100000"]
    in_calls = [str(WORKLOADS / "read_heavy"), str(_out("read")), "100000"]
    rows = []
    for name, options in {"": (), ", with copies": ("--unwind", "stack-copy", "--copy-words", "addresses")}.items():
        user, calls = _in_kernel(in_user_code, *options), _in_kernel(in_calls, *options)
        details: dict[str, object] = {}
        for where, cost in (("user code", user), ("system calls", calls)):
            details |= {f"{program}, {where}": f"{runs} runs, {ns / runs:.0f} ns each" for program, (runs, ns) in cost.programs.items()}
            details[f"in user space, {where}"] = f"{cost.user_us:.2f} us a sample, start included"
        ticks = [ns / runs / 1e3 for program, (runs, ns) in user.programs.items() if "tick" in program or "event" in program]
        if not ticks:
            raise Failed(f"no tick ran: {user.programs}")
        rows.append(Row(f"kernel time of one tick{name}", "us", max(ticks), {}, "told", None, details,
                        [f"kernel.bpf_stats_enabled, {KERNEL_HZ} Hz on each CPU, all busy in user code; includes the statistics' own"]))
        if calls.callback_us is not None:
            rows.append(Row(f"kernel time of one callback{name}", "us", calls.callback_us, {}, "told", None,
                            {"callbacks": calls.callbacks},
                            ["the same, all busy in system calls; of the samples of a second recorder, how many are in the callback"]))
    return rows


def churn(_repeats: int) -> list[Row]:
    """1,300 programs a second: samples, drops, memory at start and end."""
    ours = Rawstack()
    out, place = _out("churn"), FOLDER / "churn"
    place.mkdir(parents=True, exist_ok=True)
    workload = [str(WORKLOADS / "churn"), str(place), f"{churn_seconds:g}"]
    command = [str(ours.record), "--force", "-a", "-F", "199", "-o", str(out), "--", *workload]
    held: list[int] = []
    most_resident = 0
    with open(FOLDER / "churn.txt", "w+") as said:
        recorder = subprocess.Popen(command, stdout=said, stderr=said)
        family = Family(recorder.pid)
        pause = max(churn_seconds / 1000, 0.2)
        while recorder.poll() is None:
            if proportional := family.proportional():
                held.append(proportional)
                most_resident = max(most_resident, family.resident())
            time.sleep(pause)
        said.seek(0)
        text = said.read()
    if recorder.returncode:
        raise Failed(f"rawstack-record: exit code {recorder.returncode}\n{text[-2000:]}")
    tenth = max(len(held) // 10, 1)
    first, last, most = (value / 2**20 for value in (median(held[tenth : 2 * tenth]), median(held[-tenth:]), max(held)))
    info = ours.info(out)
    rate = int(re.search(r"rate (\d+)", text)[1])
    drops = {one["reason"]: one["count"] for one in info["drops"]}
    details = {
        "programs a second": rate,
        "samples": info["samples"],
        "drops": drops or "none",
        "processes": info["processes"],
        "memory": f"{first:.1f} MiB at the start, {last:.1f} MiB at the end",
        "with what they share in each of them": f"{most_resident / 2**20:.1f} MiB at most",
        "file": f"{info['bytes'] / 2**20:.1f} MiB",
    }
    met = most <= 64 and last <= first + 4 and sum(drops.values()) == 0
    return [Row(f"memory after {churn_seconds:g} s of churn", "MiB", most, {}, "<= 64 MiB, flat, no drops", met, details,
                ["every process, 199 Hz, while so many programs a second are executed, half of them from replaced files",
                 "the most that the recorder and its helpers took of the machine together; what they share counts once"])]


ROWS = {"cost": cost, "kernel-cost": kernel_cost, "churn": churn}
