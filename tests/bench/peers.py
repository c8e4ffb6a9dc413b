"""The others: where they are, how they are got, how they record and count."""

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measure

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
FOLDER = TARGET / "bench"
TOOLS = FOLDER / "tools"
WORKLOADS = TARGET / "workloads"
RELEASE = TARGET / "release"

# Program, crate, version, more arguments and environment for its build.
CRATES = {
    "samply": ("samply", "0.13.1", [], {"CARGO_PROFILE_RELEASE_DEBUG": "2"}),
    "addr2line": ("addr2line", "0.27.1", ["--features", "bin"], {}),
    "blazecli": ("blazecli", "0.1.14", [], {}),
}


def install(program: str) -> Path | None:
    """A program built from its crate, once; None with a word of why where that fails."""
    path = TOOLS / "bin" / program
    if path.exists():
        return path
    crate, version, arguments, environment = CRATES[program]
    print(f"building {crate} {version} (once, takes minutes)", flush=True)
    command = ["cargo", "install", "--quiet", "--locked", "--root", str(TOOLS), crate, "--version", version]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(FOLDER / "build"), **environment}
    done = subprocess.run([*command, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return path
    print(f"{crate} {version} is absent: it could not be built: {done.stderr.strip()[-300:]}")
    return None


def build_example(name: str) -> Path:
    """A helper that is an example of the symbolizer's crate."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "rawstack-symbolizer", "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    return RELEASE / "examples" / name


def find(program: str) -> Path | None:
    found = shutil.which(program)
    if not found:
        print(f"{program} is absent: not on PATH")
    return Path(found) if found else None


class Rawstack:
    record = RELEASE / "rawstack-record"
    resolve = RELEASE / "rawstack"

    def __init__(self, name: str = "rawstack", *options: str) -> None:
        self.name = name
        self.options = options

    def record_command(self, out: Path, frequency: int, target: list[str], seconds: float) -> list[str]:
        """`target` is a command behind `--`, or `-p PID`."""
        timed = target if target[0] == "--" else [*target, "-d", f"{seconds:g}s"]
        return [str(self.record), "-q", "--force", "-F", str(frequency), "-o", str(out), *self.options, *timed]

    def info(self, out: Path) -> dict:
        return json.loads(measure.run([str(self.resolve), "info", "--json", str(out)]).stdout)

    def samples(self, out: Path) -> int:
        return self.info(out)["samples"]

    def lost(self, out: Path) -> int:
        info = self.info(out)
        states = info["ids"]["states"]
        told = sum(drops["count"] for drops in info["drops"])
        return max(states["dropped"], told) + states["schedule_failed"]

    def first_time(self, out: Path) -> float:
        """Time of the first sample, CLOCK_MONOTONIC in seconds."""
        lines = measure.run([str(self.resolve), "dump", str(out)]).stdout.splitlines()
        return min(json.loads(line)["time_ns"] for line in lines) / 1e9


class Perf:
    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        self.options = options
        self.program = find("perf")

    def record_command(self, out: Path, frequency: int, target: list[str], seconds: float) -> list[str]:
        timed = target if target[0] == "--" else [*target, "--", "sleep", f"{seconds:g}"]
        # cpu-clock is what Rawstack samples: no hardware counter is compared with it.
        common = ["record", "-q", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F", str(frequency), "-o", str(out)]
        return [str(self.program), *common, *self.options, *timed]

    def _stats(self, out: Path) -> str:
        return measure.run([str(self.program), "report", "--stats", "-i", str(out)], deadline=600).stdout

    def _count(self, out: Path, event: str) -> int:
        found = re.search(rf"^\s*{event} events:\s*(\d+)", self._stats(out), re.MULTILINE)
        return int(found.group(1)) if found else 0

    def samples(self, out: Path) -> int:
        return self._count(out, "SAMPLE")

    def lost(self, out: Path) -> int:
        """Samples that the kernel counts as lost for lack of room."""
        text = self._stats(out)
        counts = re.findall(r"^\s*LOST(?:_SAMPLES)? (?:events|samples):\s*(\d+)", text, re.MULTILINE)
        return sum(map(int, counts))

    def first_time(self, out: Path) -> float:
        script = [str(self.program), "script", "-i", str(out), "-F", "time", "--ns"]
        lines = measure.run(script, deadline=600).stdout.splitlines()
        times = [float(line.strip().rstrip(":")) for line in lines if line.strip()]
        return min(times)


class Samply:
    name = "samply"
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")

    def __init__(self) -> None:
        self.program = install("samply")

    def record_command(self, out: Path, frequency: int, target: list[str], seconds: float) -> list[str]:
        timed = target if target[0] == "--" else [*target, "-d", f"{seconds:g}"]
        return [str(self.program), "record", "--save-only", "-r", str(frequency), "-o", str(out), *timed]

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Where there are no hardware counters, it asks for this setting before it tries the clock, as root too."""
        before = self.paranoid.read_text()
        if int(before) > 1:
            self.paranoid.write_text("1")
        try:
            yield
        finally:
            self.paranoid.write_text(before)

    def samples(self, out: Path) -> int:
        return sum(thread["samples"]["length"] for thread in self._profile(out)["threads"])

    @staticmethod
    def _profile(out: Path) -> dict:
        with gzip.open(out) as file:
            return json.load(file)

    def outermost(self, out: Path) -> Counter[tuple[str, int]]:
        """The outermost frame of each sample with a stack: path of its file, and address as the file's own tables say it."""
        profile = self._profile(out)
        paths = [library["path"] for library in profile["libs"]]
        bases: dict[str, int] = {}
        found: Counter[tuple[str, int]] = Counter()
        for thread in profile["threads"]:
            prefixes, frames = thread["stackTable"]["prefix"], thread["stackTable"]["frame"]
            addresses, functions = thread["frameTable"]["address"], thread["frameTable"]["func"]
            resources, libraries = thread["funcTable"]["resource"], thread["resourceTable"]["lib"]
            # A stack stands behind its prefix.
            roots: list[int] = []
            for stack, prefix in enumerate(prefixes):
                roots.append(stack if prefix is None else roots[prefix])
            for stack in thread["samples"]["stack"]:
                if stack is None:
                    continue
                frame = frames[roots[stack]]
                resource = resources[functions[frame]]
                library = libraries[resource] if resource >= 0 else None
                path = "" if library is None else paths[library]
                found[path, bases.setdefault(path, first_address(path)) + addresses[frame]] += 1
        return found


def first_address(path: str) -> int:
    """The lowest address of an ELF file of 64 bits; 0 where it is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return 0
            table, = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            file.seek(table)
            rows = file.read(size * count)
    except OSError:
        return 0
    segments = (struct.unpack_from("<IIQQ", rows, at) for at in range(0, len(rows), size))
    return min((address & -4096 for kind, _, _, address in segments if kind == 1), default=0)
