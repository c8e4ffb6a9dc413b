"""What a machine must have shown: archives that name the workload's functions, and refusals with cause and cure."""

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kernels import Kernel
from machine import Outcome

# The share of the samples that must hold each function of the workload which is always on its stack.
SHARE = 0.95
ALWAYS = ("main", "outermost", "middle")
# The same where middle() is probed: a tick while the kernel deals with the probe finds the function without its frame,
# through which its caller would be found, or left already. On a slow machine that is some of the time.
SHARE_PROBED = 0.9
ALWAYS_PROBED = ("main", "outermost")
FEWEST_SAMPLES = 300
# A refusal takes no longer in the machine, in hundredths of a second.
SLOWEST_REFUSAL = 100
# As in tests/workloads/churn.h.
CHURN_PROGRAMS, CHURN_WORK, CHURN_PAGE = 8, 0x500000, 4096
# Programs of churn whose samples are few on a slow machine, in all.
FEWEST_CHURNED = 100

# Words that the one line of a refusal must hold.
REFUSALS = {
    "no-permission": ["Permission denied", "run as root", "CAP_PERFMON"],
    "no-bpf-capability": ["not permitted", "run as root", "CAP_BPF"],
    "paranoid": ["Permission denied", "CAP_SYS_ADMIN", "perf_event_paranoid"],
    "no-btf": ["/sys/kernel/btf/vmlinux", "No such file", "CONFIG_DEBUG_INFO_BTF"],
    "too-old": ["5.4.0-1-amd64 is too old", "5.8 or newer"],
    "unwritable": ["/nowhere/refused.rawstack", "No such file", "-o"],
    "lockdown": ["locked down", "lockdown=integrity"],
}


@dataclass
class Rawstack:
    """The resolving program, with what is known of the workload on this side."""

    program: Path
    symbols: Path

    def __call__(self, *words: object) -> str:
        run = subprocess.run([self.program, *words], text=True, capture_output=True)
        if run.returncode:
            raise AssertionError(f"rawstack {words[0]}: exit code {run.returncode}: {run.stderr or run.stdout}".strip())
        return run.stdout


def can_defer(kernel: Kernel) -> bool:
    return kernel.series >= (6, 18)


def check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def recording(outcome: Outcome, name: str, mode: str, folder: Path, rawstack: Rawstack) -> tuple[Path, dict]:
    """Check that a recording is whole and adds up; its file and what `info` says."""
    said = outcome.said.get(name)
    check(said is not None, f"{name}: never ran")
    check(said.code == 0, f"{name}: exit code {said.code}: {' / '.join(said.lines)}")
    check(name in outcome.archives, f"{name}: no archive came out")
    path = folder / f"{outcome.release}-{name}.rawstack"
    path.write_bytes(outcome.archives[name])
    rawstack("verify", path)
    info = json.loads(rawstack("info", "--json", path))
    ids = info["ids"]
    check(info["host"]["kernel_release"] == outcome.release, f"{name}: of kernel {info['host']['kernel_release']}")
    check(info["mode"] == mode, f"{name}: mode {info['mode']} ({info['mode_reason']}), not {mode}")
    check(sum(ids["states"].values()) == ids["reserved"] > 0, f"{name}: {ids['reserved']} reserved, but {ids['states']}")
    return path, info


def share_known(path: Path, rawstack: Rawstack, probed: bool = False) -> float:
    """Check that each sample's functions have names, in both halves; the least share of those that always run."""
    always, enough = (ALWAYS_PROBED, SHARE_PROBED) if probed else (ALWAYS, SHARE)
    report = json.loads(rawstack("report", "--json", "--event", "cpu-clock", "--symbol-dir", rawstack.symbols, path))
    totals = {(row["module"], row["name"]): row["total"] for row in report["rows"]}
    in_kernel = totals.get(("[kernel]", "vfs_read"), 0)
    reading = totals.get(("/bin/work", "read_zeroes"), 0)
    check(0 < in_kernel <= reading, f"vfs_read has {in_kernel} of the {reading} ns of read_zeroes, which calls it")
    share, name = min((totals.get(("/bin/work", name), 0) / report["total"], name) for name in always)
    check(share >= enough, f"{name} is in {share:.1%} of the samples, not in {enough:.0%}")
    return share


def copied(kernel: Kernel, outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> str:
    """Check that stacks are copied, and that what is unwound from the copies reaches the outermost frame."""
    if kernel.series < (5, 17):
        said = outcome.said.get("copied")
        check(said is not None and said.code == 2 and "5.17" in " ".join(said.lines), f"copied: {said}")
        return ""
    path, _ = recording(outcome, "copied", mode, folder, rawstack)
    ends = json.loads(rawstack("info", "--json", "--symbol-dir", rawstack.symbols, path))["unwound"]
    share = ends.get("outermost", 0) / max(sum(ends.values()), 1)
    check(share >= SHARE, f"copied: {ends}")
    return f"{share:.1%} of {sum(ends.values())} copies to the outermost frame"


def weights(path: Path, rawstack: Rawstack) -> Counter:
    """Sum of the weights of each event."""
    sums: Counter = Counter()
    for line in rawstack("dump", path).splitlines():
        sample = json.loads(line)
        sums[sample["event"]] += sample["weight"]
    return sums


def events(outcome: Outcome, mode: str, folder: Path, rawstack: Rawstack) -> None:
    """Check that hits are counted as they happened, and that a uretprobe hides no caller."""
    path, info = recording(outcome, "events", mode, folder, rawstack)
    turns = next(int(line.split()[0]) for line in outcome.said["events"].lines if line.endswith(" turns"))
    sums = weights(path, rawstack)
    returns = next(weight for event, weight in sums.items() if event.startswith("uretprobe:"))
    check(returns == turns, f"events: {returns} returns of {turns} calls")
    reads = sums["raw_syscalls:sys_enter"]
    # From 6.11 on, what a uretprobe returns to makes a system call, too.
    check(64 * turns <= reads <= 65 * turns + 200, f"events: {reads} system calls in {turns} turns")
    share_known(path, rawstack, probed=True)
    modules = [module["path"] for module in info["modules"]]
    check("[uprobes]" not in modules, "events: the trampoline of uretprobes in a stack")


def kprobe(outcome: Outcome, mode: str, folder: Path, rawstack: Rawstack) -> None:
    path, _ = recording(outcome, "kprobe", mode, folder, rawstack)
    turns = next(int(line.split()[0]) for line in outcome.said["kprobe"].lines if line.endswith(" turns"))
    hits = weights(path, rawstack)["kprobe:vfs_read"]
    check(64 * turns <= hits <= 64 * turns + 20, f"kprobe: {hits} hits in {turns} turns of 64")


def samples_of(path: Path, rawstack: Rawstack) -> list[dict]:
    return [json.loads(line) for line in rawstack("dump", path).splitlines()]


def printed(outcome: Outcome, name: str, pattern: str) -> int:
    """A number that the recorded command printed."""
    text = "\n".join(outcome.said[name].lines)
    match = re.search(pattern, text)
    check(match is not None, f"{name}: no {pattern} in: {text}")
    return int(match[1])


def build_id(program: Path) -> str:
    notes = subprocess.check_output(["readelf", "-nW", program], text=True)
    return re.search(r"Build ID: (\w+)", notes)[1]


def known_counts(outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> str:
    """Check that a uprobe makes a sample of each call, and that a second of sleep is a second blocked."""
    path, info = recording(outcome, "uprobe", mode, folder, rawstack)
    calls = printed(outcome, "uprobe", r"(\d+) turns")
    check(info["samples"] == calls, f"uprobe: {info['samples']} samples of {calls} calls of middle()")
    path, _ = recording(outcome, "off-cpu", mode, folder, rawstack)
    blocked = sum(sample["weight"] for sample in samples_of(path, rawstack)) / 1e9
    # The clock of the sleep starts a moment before the task is switched out: some milliseconds on a slow machine.
    check(0.98 <= blocked <= 2, f"off-cpu: {blocked} s in a command that sleeps 1 s")
    _, info = recording(outcome, "faults", mode, folder, rawstack)
    return f"{calls} calls, {blocked:.3f} s blocked, {info['samples']} page faults"


def kernel_half_of_sleep(outcome: Outcome, name: str, mode: str, folder: Path, rawstack: Rawstack) -> tuple[str, ...]:
    """Check that 40 programs that sleep 20 ms have one kernel half, which is long enough, and give its offsets."""
    path, _ = recording(outcome, name, mode, folder, rawstack)
    sleeps = [sample for sample in samples_of(path, rawstack) if sample["weight"] >= 18e6 and sample["comm"] == "sleep"]
    halves = Counter(
        tuple(frame["offset"] for frame in sample["frames"] if frame["kind"] == "kernel") for sample in sleeps
    )
    check(len(sleeps) >= 35, f"{name}: {len(sleeps)} sleeps of 40")
    check(len(halves) == 1, f"{name}: kernel halves of a sleep: {halves}")
    return next(iter(halves))


def waited(outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> str:
    """Check that a wait has the same kernel half each time, and no wrong frame while a kretprobe has a return address of it.

    Where the return to user space can be hooked, how to unwind it is remembered. Under the kretprobe it is the kernel's own
    unwinder's, which stops there: of a task that is about to run it does not look for the address."""
    alone = kernel_half_of_sleep(outcome, "waits", mode, folder, rawstack)
    check(len(alone) >= 3, f"waits: {alone}")
    if mode != "deferred":
        return f"{len(alone)} kernel frames of a wait"
    probed = kernel_half_of_sleep(outcome, "probed-waits", mode, folder, rawstack)
    hits = printed(outcome, "probed", r"returns +(\d+)")
    check(hits >= 35, f"probed-waits: {hits} returns of 40 sleeps")
    check(probed == alone[: len(probed)], f"waits: {alone}, with a kretprobe {probed}")
    return f"{len(alone)} kernel frames of a wait, {len(probed)} under a kretprobe"


def in_cgroup(outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> None:
    path, _ = recording(outcome, "cgroup", mode, folder, rawstack)
    pids = {sample["pid"] for sample in samples_of(path, rawstack)}
    inside = int(outcome.said["inside"].lines[0])
    check(pids == {inside}, f"cgroup: samples of processes {pids}, only {inside} is inside")


def churned(kernel: Kernel, outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> str:
    """Check that a sample in churn_work() has the build ID of the only program that has the function there.

    Before 5.12 the kernel tells no build IDs: they are read from the file, and there is none to be had of a program that
    has ended and whose file was written over. Never another's."""
    path, _ = recording(outcome, "churn", mode, folder, rawstack)
    build_ids = [build_id(rawstack.symbols / f"churn-{number}") for number in range(CHURN_PROGRAMS)]
    pids, right, without = set(), 0, 0
    for sample in samples_of(path, rawstack):
        leaf = next((frame for frame in sample["frames"] if frame["kind"] == "user"), None)
        number = (int(leaf["address"], 16) - CHURN_WORK) // CHURN_PAGE if leaf else -1
        if 0 <= number < CHURN_PROGRAMS:
            pids.add(sample["pid"])
            if leaf["build_id"] is None:
                without += 1
            else:
                check(leaf["build_id"] == build_ids[number], f"churn: program {number}, but {sample}")
                right += 1
    ended = printed(outcome, "churn", r"ended (\d+)")
    check(right + without >= FEWEST_CHURNED and right > 0, f"churn: {right} and {without} samples of {ended} programs")
    check(kernel.series < (5, 12) or without <= right / 100, f"churn: {without} samples without build ID, {right} with")
    check(len(pids) < ended / 2, f"churn: {ended} programs, but {len(pids)} process IDs: they were not used again")
    return f"{ended} programs on {len(pids)} PIDs, {right} samples right, {without} unknown"


def lived(outcome: Outcome, folder: Path, mode: str, rawstack: Rawstack) -> str:
    """Check that samples go on, in time, while a CPU goes and comes, the clock jumps and the recorder stands still."""
    path, info = recording(outcome, "life", mode, folder, rawstack)
    samples = samples_of(path, rawstack)
    start, end = info["start_ns"], info["end_ns"]
    check(7e9 < end - start < 12e9, f"life: {(end - start) / 1e9} s long, not 8 s")
    times = sorted(sample["time_ns"] for sample in samples)
    check(all(start <= time <= end for time in times), "life: samples at times outside the recording")
    gap = max((later - time for time, later in zip(times, times[1:])), default=end - start)
    check(gap < 1e9, f"life: no sample for {gap / 1e9} s")
    late = sum(1 for sample in samples if sample["cpu"] == 1 and sample["time_ns"] > end - 2_000_000_000)
    check(late > 20, f"life: {late} samples of the CPU that came back, in the last 2 s")
    check(info["ids"]["states"]["dropped"] == 0, f"life: {info['ids']}")
    return f"longest gap {gap / 1e6:.0f} ms"


def refusal(outcome: Outcome, name: str, words: list[str]) -> None:
    said = outcome.said.get(name)
    check(said is not None, f"{name}: never ran")
    text = " / ".join(said.lines)
    check(said.code == 2 and len(said.lines) == 1, f"{name}: exit code {said.code}, {len(said.lines)} lines: {text}")
    check(said.hundredths <= SLOWEST_REFUSAL, f"{name}: took {said.hundredths / 100} s")
    for word in words:
        check(word in text, f"{name}: no {word!r} in: {text}")


def rights(outcome: Outcome) -> None:
    """Check that no thread of a recorder that records may do anything more."""
    said = outcome.said.get("rights")
    check(said is not None and said.code == 0, f"rights: {said}")
    lines = [line.split() for line in said.lines]
    check(len(lines) >= 10, f"rights: fewer than two threads: {said.lines}")
    wanted = {"CapPrm:": 0, "CapEff:": 0, "CapBnd:": 0, "NoNewPrivs:": 1, "Seccomp:": 2}
    for name, value in lines:
        check(int(value, 16) == wanted[name], f"rights: {name} is {value}")


def doctor(outcome: Outcome) -> None:
    """Check that it finds what a recording needs."""
    said = outcome.said.get("doctor")
    check(said is not None and said.code == 0, f"doctor: {said}")


def judge(kernel: Kernel, outcome: Outcome, folder: Path, rawstack: Rawstack) -> tuple[str, list[str]]:
    """A line on what was shown, and what was not as it must be."""
    failures: list[str] = []
    facts: list[str] = []

    def attempt(action, *arguments) -> None:
        try:
            action(*arguments)
        except AssertionError as failure:
            failures.append(str(failure))

    mode = "deferred" if can_defer(kernel) else "immediate"

    def best() -> None:
        path, info = recording(outcome, "best", mode, folder, rawstack)
        check(info["samples"] >= FEWEST_SAMPLES, f"best: only {info['samples']} samples")
        states = ", ".join(f"{count} {state}" for state, count in info["ids"]["states"].items() if count)
        facts.append(f"{mode:<9} {states}; {share_known(path, rawstack):.1%} known")

    def tell(look, *arguments) -> None:
        if fact := look(*arguments, outcome, folder, mode, rawstack):
            facts.append(fact)

    attempt(check, outcome.release == kernel.release, f"kernel {outcome.release or 'none'} came up")
    attempt(best)
    attempt(recording, outcome, "immediate", "immediate", folder, rawstack)
    attempt(recording, outcome, "capabilities", mode, folder, rawstack)
    attempt(events, outcome, mode, folder, rawstack)
    attempt(kprobe, outcome, mode, folder, rawstack)
    attempt(rights, outcome)
    attempt(doctor, outcome)
    for look in (known_counts, waited, in_cgroup, lived):
        attempt(tell, look)
    attempt(tell, churned, kernel)
    attempt(tell, copied, kernel)
    refusals = dict(REFUSALS)
    if kernel.series < (5, 15):
        refusals["two-probes"] = ["uprobe:/bin/work:0x", "5.15"]
    if not can_defer(kernel):
        refusals["no-deferral"] = ["--user-stacks", "6.18", "immediate"]
    if kernel.series < (5, 11):
        refusals["locked-memory"] = ["not permitted", "ulimit -l"]
    for name, words in refusals.items():
        attempt(refusal, outcome, name, words)
    slowest = max((outcome.said[name].hundredths for name in refusals if name in outcome.said), default=0)
    facts.append(f"{len(refusals)} refusals, the slowest {slowest / 100} s")
    return "; ".join(facts), failures
