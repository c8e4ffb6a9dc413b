"""The row about unwinding copies of stacks: how fast, and how many stacks reach their outermost frame, beside perf's."""

import json
import os
import re
import sys
from pathlib import Path

from copying import _compiler
from measure import Failed, median, run
from peers import FOLDER, Perf, Rawstack, Samply
from table import Row

OUT = FOLDER / "unwinding"
# A program without frame pointers whose stacks are of many depths; so fast that its stacks are enough for a time.
LOAD = """
import json, re, sys, time
def deep(n):
    return json.dumps({str(k): [k] * 5 for k in range(200)}) if n == 0 else deep(n - 1)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for depth in range(12):
        text = deep(depth)
        json.loads(text), sorted(text), re.findall(r"\\d+", text)
"""
SECONDS = 10
TIMES = 5
# Where threads begin, as symbol tables call it.
ROOTS = ("_start", "clone", "__clone", "clone3", "__clone3", "__GI___clone3", "start_thread")
STACKS, MORE = 500_000, 20
# perf unwinds some forty stacks of a compiler a second: what part of them it follows to the end, fewer tell, too.
SHARE_HZ, PERF_SHARE_HZ = 999, 49


def _ours() -> Rawstack:
    return Rawstack("rawstack", "--unwind", "stack-copy", "--max-memory", "256M")


def _perf() -> Perf:
    # Where build IDs come with mappings, perf is not touched by those that the kernel marks for a recorder beside it.
    return Perf("perf script (dwarf)", "--call-graph", "dwarf,65528", "--buildid-mmap")


def _script(perf: Perf, data: Path) -> list[str]:
    """Let perf unwind, and name what it finds by symbols alone, as we do."""
    return [str(perf.program), "script", "-i", str(data), "-F", "ip,sym", "--no-inline"]


def _record(peer: Rawstack | Perf | Samply, name: str, frequency: int, command: list[str]) -> Path:
    OUT.mkdir(parents=True, exist_ok=True)
    out = OUT / name
    out.unlink(missing_ok=True)
    run(peer.record_command(out, frequency, ["--", *command], 0))
    return out


def _wall(command: list[str], repeats: int) -> float:
    run(command)
    return median([run(command).wall for _ in range(repeats)])


def _roots(script: str) -> tuple[int, int]:
    """Stacks in what `perf script` printed, and those whose outermost frame is where a thread begins."""
    stacks = reached = 0
    for stack in script.split("\n\n"):
        lines = [line.split(None, 1) for line in stack.splitlines() if line.startswith((" ", "\t"))]
        names = [words[1] for words in lines if len(words) == 2]
        if not names:
            continue
        stacks += 1
        reached += names[-1].split("+")[0].strip() in ROOTS
    return stacks, reached


def _samply_roots(out: Path) -> tuple[int, int]:
    """As [_roots], of what samply recorded. It keeps addresses only, which get their names here."""
    by_file: dict[str, dict[int, int]] = {}
    for (path, address), count in Samply().outermost(out).items():
        by_file.setdefault(path, {})[address] = count
    stacks = sum(sum(counts.values()) for counts in by_file.values())
    reached = 0
    for path, counts in by_file.items():
        if not Path(path).is_file():
            continue
        numbers = [f"{address:#x}" for address in counts]
        command = [str(Rawstack.resolve), "symbolize", "--symbols-only", "--json", "--file", path, "--addresses", *numbers]
        for line in run(command).stdout.splitlines():
            answer = json.loads(line)
            if any(frame["name"] in ROOTS for frame in answer["frames"]):
                reached += counts[int(answer["address"], 16)]
    return stacks, reached


def _speed(repeats: int) -> Row:
    program = [sys.executable, "-c", LOAD]
    ours, perf = _ours(), _perf()
    once = _record(ours, "speed.rawstack", 19_999, [*program, str(SECONDS)])
    # So many that what is worked out once for each place in a program does not count.
    archive = OUT / "many.rawstack"
    run([str(ours.resolve), "merge", "-q", "--force", *[str(once)] * TIMES, "-o", str(archive)])
    copies = ours.info(archive)["copies"]["taken"]
    report = [str(ours.resolve), "report", "-q", "--symbols-only", str(archive)]
    whole = _wall(report, repeats)
    rest = _wall([*report, "--stacks", "frame-pointers"], repeats)
    value = copies / max(whole - rest, 1e-3)
    details: dict[str, object] = {"rawstack": f"{copies} stacks; report {whole:.2f} s, with recorded stacks {rest:.2f} s"}
    theirs = None
    if perf.program:
        data = _record(perf, "speed.data", 999, [*program, "3"])
        script = _script(perf, data)
        stacks, _ = _roots(run(script, deadline=900).stdout)
        if stacks == 0:
            raise Failed("perf script printed no stack")
        wall = run(script, deadline=900).wall
        theirs = stacks / wall
        details[perf.name] = f"{stacks} stacks in {wall:.2f} s"
        details["report end to end, against perf script"] = f"{copies / whole / theirs:.0f} x"
    met = value >= STACKS and (theirs is None or copies / whole >= MORE * theirs)
    notes = [f"python3, 64 KiB of each stack; {os.cpu_count()} CPUs, rules and files known: the second run of each",
             "rawstack: what a report takes longer than one with the recorded stacks; perf: all of perf script -F ip,sym --no-inline"]
    goal = f">= {STACKS:,}, and end to end >= {MORE} x perf script"
    return Row("copied stacks unwound", "stacks/s", value, {perf.name: theirs}, goal, met, details, notes)


def _why(failure: Failed) -> str:
    """Of a message with a whole command, how that ended."""
    ended = re.search(r"exit code -?\d+|still ran after .*", str(failure))
    return ended.group() if ended else str(failure)


def _followed(peer: Perf | Samply, command: list[str]) -> tuple[int, int]:
    """Stacks that a peer unwound, and those that it followed to where a thread begins."""
    if isinstance(peer, Samply):
        with peer.allowed():
            return _samply_roots(_record(peer, "share.json.gz", SHARE_HZ, command))
    data = _record(peer, "share.data", PERF_SHARE_HZ, command)
    return _roots(run(_script(peer, data), deadline=900).stdout)


def _share(name: str, command: list[str]) -> Row:
    ours, perf = _ours(), _perf()
    archive = _record(ours, "share.rawstack", SHARE_HZ, command)
    ends = ours.info(archive)["unwound"]
    value = 100 * ends.get("outermost", 0) / max(sum(ends.values()), 1)
    details: dict[str, object] = {"rawstack": ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))}
    theirs: dict[str, float | None] = {}
    for peer in (perf, Samply()):
        if not peer.program:
            continue
        try:
            stacks, reached = _followed(peer, command)
        except Failed as failure:
            # samply ends by a panic where another recorder, that has build IDs from the kernel, runs meanwhile.
            theirs[peer.name], details[peer.name] = None, f"did not come to its end: {_why(failure)}"
            continue
        theirs[peer.name] = 100 * reached / max(stacks, 1)
        details[peer.name] = f"{reached} of {stacks} stacks end where a thread begins"
    # Stacks of python3 are no trouble to anybody.
    is_hard = name == "rustc"
    met = value >= 99 and (not is_hard or all(value > their for their in theirs.values() if their is not None))
    notes = [f"recorded at {SHARE_HZ} Hz, by perf at {PERF_SHARE_HZ} Hz: it takes some 20 ms for each of these stacks"]
    if is_hard:
        notes.append("a single frame of rustc has 527 KiB: behind it lies the end of the stack, which is copied, too")
    goal = ">= 99, and more than each of them" if is_hard else ">= 99"
    return Row(f"stacks to the outermost frame, {name}", "%", value, theirs, goal, met, details, notes)


def unwinding(repeats: int) -> list[Row]:
    """How fast copies are unwound, and how far."""
    python = [sys.executable, "-c", LOAD, "3"]
    return [_speed(repeats), _share("python3", python), _share("rustc", _compiler())]


ROWS = {"unwind": unwinding}
