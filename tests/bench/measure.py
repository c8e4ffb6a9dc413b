"""Run commands and say what they took: time, processor time, memory. Knows nothing of who is measured."""

import os
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.02


@dataclass
class Usage:
    """What one command took."""

    command: list[str]
    code: int
    start: float  # CLOCK_MONOTONIC, seconds, before the fork
    wall: float
    cpu: float  # user and system, of the process, of the children that it waited for, and of those of its family
    peak_rss: int  # bytes, of the process alone; with `is_family_waited_for` the sum of the peaks of its family
    family_peak: int  # bytes, with its descendants that run the same program
    stdout: str
    stderr: str


class Failed(Exception):
    """A command did not do its work."""


def _peak_of(pid: int) -> int:
    """VmHWM: starts afresh at exec, where ru_maxrss keeps the size of the forking parent."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), default=0)


class Family:
    """A process, and those of its descendants that run the same program."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.helpers: dict[int, int] = {}

    def members(self) -> list[int]:
        waiting, members = [self.pid], []
        own = self._program(self.pid)
        while waiting:
            pid = waiting.pop()
            if own and self._program(pid) == own:
                members.append(pid)
                try:
                    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                except OSError:
                    continue
                waiting += map(int, children.split())
        return members

    def resident(self) -> int:
        """Bytes in memory of all of them."""
        return sum(self._resident(pid) for pid in self.members())

    def proportional(self) -> int:
        """Bytes that all of them take of the machine: what is shared counts once, where `resident` counts it in each."""
        return sum(self._proportional(pid) for pid in self.members())

    def note_helpers(self) -> int:
        """Bytes in memory of all of them; on the way, note the processor time of all but the first."""
        resident = 0
        for pid in self.members():
            resident += self._resident(pid)
            if pid != self.pid:
                self.helpers[pid] = self._nanoseconds(pid) or self.helpers.get(pid, 0)
        return resident

    def helpers_cpu(self) -> float:
        """Seconds of the processor that the others took, as last noted: the first does not wait for them."""
        return sum(self.helpers.values()) / 1e9

    @staticmethod
    def _nanoseconds(pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        except OSError:
            return 0

    @staticmethod
    def _program(pid: int) -> str | None:
        try:
            return os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return None

    @staticmethod
    def _resident(pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except OSError:
            return 0

    @staticmethod
    def _proportional(pid: int) -> int:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


class _Watcher(threading.Thread):
    """Looks at a process every so often: notes its peak memory, kills it when its time is over."""

    def __init__(self, child: subprocess.Popen, until: float, sees_family: bool) -> None:
        super().__init__(daemon=True)
        self.child, self.until, self.sees_family = child, until, sees_family
        self.peak, self.family_peak, self.killed = 0, 0, False
        self.family = Family(child.pid)
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(POLL_SECONDS):
            seen = self.family.members() if self.sees_family else [self.child.pid]
            self.peak = max(self.peak, sum(map(_peak_of, seen)))
            self.family_peak = max(self.family_peak, self.family.note_helpers())
            if time.clock_gettime(time.CLOCK_MONOTONIC) > self.until:
                self.killed = True
                os.kill(self.child.pid, 9)
                return


def run(
    command: list[str],
    *,
    stdin: Path | None = None,
    stdout: Path | None = None,
    deadline: float = 300,
    codes: tuple[int, ...] = (0,),
    is_family_waited_for: bool = False,
    environment: dict[str, str] | None = None,
) -> Usage:
    """Run `command` to its end. Its standard output is kept, or goes to the file `stdout`.

    `is_family_waited_for`: it does its work in a child that it waits for, whose time is in its own then. `environment`: what
    it has beside this program's.
    """
    with (
        open(stdin or os.devnull, "rb") as source,
        open(stdout, "wb") if stdout else tempfile.TemporaryFile() as target,
        tempfile.TemporaryFile() as errors,
    ):
        start = time.clock_gettime(time.CLOCK_MONOTONIC)
        child = subprocess.Popen(command, stdin=source, stdout=target, stderr=errors,
                                 env={**os.environ, **(environment or {})})
        watcher = _Watcher(child, start + deadline, is_family_waited_for)
        watcher.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.clock_gettime(time.CLOCK_MONOTONIC) - start
        watcher.ended.set()
        watcher.join()
        code = child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        err = errors.read().decode(errors="replace")
        out = ""
        if not stdout:
            target.seek(0)
            out = target.read().decode(errors="replace")
    if watcher.killed:
        raise Failed(f"{_shown(command)}: still ran after {deadline} s")
    if code not in codes:
        raise Failed(f"{_shown(command)}: exit code {code}\n{err.strip()[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    if not is_family_waited_for:
        cpu += watcher.family.helpers_cpu()
    return Usage(command, code, start, wall, cpu, watcher.peak, watcher.family_peak, out, err)


def _shown(command: list[str]) -> str:
    text = " ".join(command)
    return text if len(text) < 300 else f"{text[:300]} …"


class Background:
    """A workload beside the measured command, ended at the end of the block."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def __enter__(self) -> str:
        self.child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        time.sleep(0.2)
        return str(self.child.pid)

    def __exit__(self, *_error: object) -> None:
        self.child.kill()
        self.child.wait()


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> float:
    """Distance of the extremes, as a part of the median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
