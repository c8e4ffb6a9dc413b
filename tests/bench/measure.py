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
    cpu: float  # user and system, of the process and of the children that it waited for
    peak_rss: int  # bytes, of the process alone
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


class _Watcher(threading.Thread):
    """Looks at a process every so often: notes its peak memory, kills it when its time is over."""

    def __init__(self, child: subprocess.Popen, until: float) -> None:
        super().__init__(daemon=True)
        self.child, self.until = child, until
        self.peak, self.killed = 0, False
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(POLL_SECONDS):
            self.peak = max(self.peak, _peak_of(self.child.pid))
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
) -> Usage:
    """Run `command` to its end. Its standard output is kept, or goes to the file `stdout`."""
    with (
        open(stdin or os.devnull, "rb") as source,
        open(stdout, "wb") if stdout else tempfile.TemporaryFile() as target,
        tempfile.TemporaryFile() as errors,
    ):
        start = time.clock_gettime(time.CLOCK_MONOTONIC)
        child = subprocess.Popen(command, stdin=source, stdout=target, stderr=errors)
        watcher = _Watcher(child, start + deadline)
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
    return Usage(command, code, start, wall, usage.ru_utime + usage.ru_stime, watcher.peak, out, err)


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
