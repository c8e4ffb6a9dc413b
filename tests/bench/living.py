"""The rows about a recorder that is left running: what it costs at a low rate, and what becomes of it under churn."""

import ctypes
import os
import re
import subprocess
import time
from contextlib import contextmanager
from collections.abc import Iterator
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


def kernel_cost(_repeats: int) -> list[Row]:
    """What one tick takes in the kernel, by its own statistics of BPF programs, beside what it takes in user space."""
    ours = Rawstack()
    out, seconds, frequency = _out("kernel"), 6, 5000
    programs = _Programs()
    # Of the whole machine, all busy: so each tick is a sample.
    with Background([THREADS, str(os.cpu_count()), "100000"]), _counting():
        before = programs.read()
        recorder = subprocess.Popen(ours.record_command(out, frequency, ["-a"], seconds))
        # Shortly before it ends: its programs go with it.
        time.sleep(seconds - 1)
        during = {number: read for number, read in programs.read().items() if number not in before}
        _, status, usage = os.wait4(recorder.pid, 0)
        if status:
            raise Failed(f"rawstack-record: status {status}")
    ran = {name: (runs, time_ns) for name, runs, time_ns in during.values() if runs}
    ticks = {name: time_ns / runs / 1e3 for name, (runs, time_ns) in ran.items() if "tick" in name or "event" in name}
    if not ticks:
        raise Failed(f"no program of ours ran: {during}")
    user = (usage.ru_utime + usage.ru_stime) / ours.samples(out) * 1e6
    details: dict[str, object] = {name: f"{runs} runs, {ns / runs:.0f} ns each" for name, (runs, ns) in ran.items()}
    details["in user space, start included"] = f"{user:.2f} us a sample"
    value = max(ticks.values())
    return [Row("kernel time of one tick", "us", value, {}, "told", None, details,
                [f"kernel.bpf_stats_enabled, {frequency} Hz on each CPU, all busy; includes the statistics' own",
                 "the kernel does not count the callback on return; the row on the slow-down has both"])]


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
