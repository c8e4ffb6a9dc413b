"""The rows about copies of stacks: size and cost, beside perf's."""

import os
from pathlib import Path

import measure
from measure import median, run
from peers import FOLDER, WORKLOADS, Perf, Rawstack
from table import Row

OUT = FOLDER / "copies"
RECURSE = str(WORKLOADS / "recurse")
CRATE = "regex-syntax"
# Of what `info --json` says of copies: all others are losses, by reason.
COUNTS = ("taken", "cut", "partial", "bytes")


def _peers() -> tuple[Rawstack, Rawstack, Perf]:
    return (
        Rawstack("rawstack, addresses", "--unwind", "stack-copy"),
        Rawstack("rawstack, all words", "--unwind", "stack-copy", "--copy-words", "all"),
        Perf("perf record --call-graph dwarf -z", "--call-graph", "dwarf", "-z"),
    )


def _compiler() -> list[str]:
    """rustc on a crate of some size, from cargo's own registry: everybody who built this has it."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    sources = sorted(home.glob(f"registry/src/*/{CRATE}-*/src/lib.rs"))
    if not sources:
        raise measure.Failed(f"no source of {CRATE} in {home}/registry: build the workspace first")
    (OUT / "crate").mkdir(parents=True, exist_ok=True)
    features = [word for name in ("std", "unicode") for word in ("--cfg", f'feature="{name}"')]
    command = ["rustc", "--edition", "2021", "--cap-lints", "allow", "-O", "--crate-type", "lib"]
    return [*command, "--crate-name", "crate", *features, "--out-dir", str(OUT / "crate"), str(sources[-1])]


def _sizes(frequency: int, command: list[str], repeats: int) -> tuple[dict[str, float], dict[str, str]]:
    """Bytes a sample, and what else is to be said."""
    OUT.mkdir(parents=True, exist_ok=True)
    figures: dict[str, list[float]] = {}
    details: dict[str, str] = {}
    for _ in range(repeats):
        for peer in _peers():
            if not getattr(peer, "program", True):
                continue
            out = OUT / "recorded"
            out.unlink(missing_ok=True)
            run(peer.record_command(out, frequency, ["--", *command], 0))
            samples = peer.samples(out)
            figures.setdefault(peer.name, []).append(out.stat().st_size / max(samples, 1))
            details[peer.name] = f"{samples} samples, {peer.lost(out)} lost"
            if isinstance(peer, Rawstack):
                copies = peer.info(out)["copies"]
                each = copies["bytes"] // max(copies["taken"], 1)
                lost = sum(count for name, count in copies.items() if name not in COUNTS)
                details[peer.name] += f"; {copies['taken']} copies of {each} bytes, {copies['cut']} cut, {lost} lost"
    return {name: median(values) for name, values in figures.items()}, details


def copy_size(repeats: int) -> list[Row]:
    """Bytes a sample with copies of stacks."""
    ours, whole, perf = (peer.name for peer in _peers())
    rows = []
    values, details = _sizes(5000, [RECURSE, "4"], repeats)
    value, other = values[ours], values.get(perf)
    notes = ["one thread of recursive calls, 5000 Hz; perf copies 8 KiB of each stack, we 64 KiB and the end of longer ones"]
    peers = {whole: values.get(whole), perf: other}
    rows.append(Row("bytes a copied stack", "bytes", value, peers, "<= 40", value <= 40, details, notes))
    values, details = _sizes(999, _compiler(), min(repeats, 2))
    value, other = values[ours], values.get(perf)
    notes = [f"rustc on {CRATE}, 999 Hz; perf copies 8 KiB of each stack, we 64 KiB and the end of longer ones"]
    met = value <= 0.25 * other if other else None
    goal = "<= 0.25 x perf dwarf -z"
    peers = {whole: values.get(whole), perf: other}
    rows.append(Row("bytes a copied stack, rustc", "bytes", value, peers, goal, met, details, notes))
    return rows


def copy_cost(repeats: int) -> list[Row]:
    """How much longer a compiler takes while it is recorded at 999 Hz with copies of its stacks."""
    command = _compiler()
    times: dict[str, list[float]] = {"alone": []}
    for _ in range(repeats):
        times["alone"].append(run(command).wall)
        for peer in _peers():
            if getattr(peer, "program", True):
                out = OUT / "recorded"
                out.unlink(missing_ok=True)
                wall = run(peer.record_command(out, 999, ["--", *command], 0)).wall
                times.setdefault(peer.name, []).append(wall)
    ours, whole, perf = (peer.name for peer in _peers())
    alone = median(times["alone"])
    slower = {name: (median(values) / alone - 1) * 100 for name, values in times.items() if name != "alone"}
    value, other = slower[ours], slower.get(perf)
    met = value <= 0.5 * other if other and other > 0 else None
    details = {name: f"{median(values):.2f} s" for name, values in times.items()}
    notes = [f"wall time of rustc on {CRATE}, recorded, against alone; start and end of the recorder included"]
    peers = {whole: slower.get(whole), perf: other}
    return [Row("slow-down with copies", "%", value, peers, "<= 0.5 x perf dwarf -z", met, details, notes)]


ROWS = {"copies": copy_size, "copy-cost": copy_cost}
