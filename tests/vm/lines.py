"""Kernel frames held against the kernel's own debug information, in a machine whose kernel lies at a random address."""

import json
import subprocess
from collections import Counter
from pathlib import Path

from judge import Rawstack, check
from machine import Outcome

# Function, source file without its folders, line, whether it is inlined.
Place = tuple[str, str, int, bool]
FEWEST_PLACES = 50


def start_of_text(vmlinux: Path) -> int:
    symbols = subprocess.check_output(["nm", vmlinux], text=True)
    return next(int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" _stext"))


def stacks(samples: list[dict], start: int) -> list[tuple[int, list[int]]]:
    """Weight and addresses in the kernel proper of each sample: of callers the call's, not where it returns to."""
    return [(sample["weight"], [start + int(frame["offset"], 16) - (position > 0)
                                for position, frame in enumerate(sample["frames"])
                                if frame["kind"] == "kernel" and frame["path"] == "[kernel]"])
            for sample in samples]


def whole(name: str) -> str:
    """llvm-symbolizer takes the symbol's name, which says which part of the function it is; no name in C holds a dot."""
    return name.split(".")[0]


def chains(addresses: set[int], vmlinux: Path) -> dict[int, list[Place]]:
    """What llvm-symbolizer has for each address, innermost first."""
    answer = subprocess.run(["llvm-symbolizer-19", "--output-style=JSON", f"--obj={vmlinux}"], text=True, check=True,
                            input="".join(f"{address:#x}\n" for address in addresses), capture_output=True).stdout
    places = {}
    for line in answer.splitlines():
        said = json.loads(line)
        frames = said["Symbol"]
        places[int(said["Address"], 16)] = [
            (whole(frame["FunctionName"]), Path(frame["FileName"]).name, frame["Line"], frame is not frames[-1])
            for frame in frames]
    return places


def expected(samples: list[dict], vmlinux: Path) -> Counter[Place]:
    """Weight of each place in the kernel proper: of all samples that have it, each once."""
    taken = stacks(samples, start_of_text(vmlinux))
    known = chains({address for _, addresses in taken for address in addresses}, vmlinux)
    places: Counter[Place] = Counter()
    for weight, addresses in taken:
        for place in {place for address in addresses for place in known[address]}:
            places[place] += weight
    return places


def reported(archive: Path, rawstack: Rawstack, folder: Path) -> Counter[Place]:
    """The same, as a report has it that finds the debug information in `folder`."""
    report = json.loads(rawstack("report", "--json", "--by", "line", "--symbol-dir", folder, archive))
    return Counter({(row["name"], Path(row["file"] or "").name, row["line"] or 0, row["inlined"]): row["total"]
                    for row in report["rows"] if row["module"] == "[kernel]"})


def kernel_lines(outcome: Outcome, archive: Path, vmlinux: Path, rawstack: Rawstack) -> str:
    """Check that functions and lines of the kernel are those of its debug information, inlined ones, too, though it lay
    elsewhere than that says."""
    lay_at, linked_at = int(outcome.said["text"].lines[0].split()[0], 16), start_of_text(vmlinux)
    check(lay_at != linked_at, f"lines: the kernel lay at {lay_at:#x}, where it was linked to")
    samples = [json.loads(line) for line in rawstack("dump", archive).splitlines()]
    wanted, found = expected(samples, vmlinux), reported(archive, rawstack, vmlinux.parent)
    check(len(wanted) >= FEWEST_PLACES, f"lines: only {len(wanted)} places in the kernel")
    differ = [f"{place}: {found[place]} ns, not {wanted[place]}" for place in sorted(wanted.keys() | found.keys())
              if found[place] != wanted[place]]
    check(not differ, f"lines: {len(differ)} of {len(wanted)} places differ: {'; '.join(differ[:5])}")
    return f"{len(wanted)} places in the kernel, moved by {lay_at - linked_at:#x}, as llvm-symbolizer has them"
