#!/usr/bin/env python3
"""What `rawstack diff` finds on this machine: a real workload with rises of 5, 10, 20 and 50 % in one function, and pairs of
one build with itself. `verdicts.py [--pairs N] [--runs N]`; needs root, the release programs and gcc. Nothing is asserted.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from measure import run
from peers import ROOT, Rawstack

SOURCE = ROOT / "tests/workloads/regression.c"
FLAGS = ["-g", "-O2", "-fno-omit-frame-pointer"]
FREQUENCY = 3997
UNITS = 12_000
RISES = (5, 10, 20, 50)


class Machine:
    """Builds and recordings in a folder of their own."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs

    def build(self, percent: int) -> Path:
        program = self.folder / f"{percent}/bench"
        program.parent.mkdir(exist_ok=True)
        run(["gcc", *FLAGS, f"-DPARSE={percent}", "-o", str(program), str(SOURCE)])
        return program

    def compare(self, base: Path, new: Path) -> dict:
        """Record both in turns, and judge."""
        archives: dict[str, list[str]] = {"base": [], "new": []}
        for number in range(self.runs):
            sides = [("base", base), ("new", new)]
            for side, program in sides if number % 2 == 0 else reversed(sides):
                archive = self.folder / f"{side}-{number}.rawstack"
                command = [str(Rawstack.record), "-q", "--force", "-F", str(FREQUENCY), "--work", str(UNITS)]
                run([*command, "-o", str(archive), "--", str(program), str(UNITS)])
                archives[side].append(str(archive))
        pair = [",".join(archives[side]) for side in ("base", "new")]
        command = [str(Rawstack.resolve), "diff", "-q", "--no-kernel", "--fail-on", "never", "--format", "json", *pair]
        return json.loads(subprocess.run(command, cwd=self.folder, check=True, capture_output=True).stdout)


def told(found: dict) -> str:
    rows = {row["name"]: row for row in found["rows"]}
    parse = rows["parse"]
    others = [name for name, row in rows.items() if row["verdict"] == "regression" and name != "parse"]
    low, high = (bound / parse["base"] for bound in parse["bounds"])
    return (f"{found['verdict']:<12} parse {parse['change']:+.1%} (90 %: {low:+.1%} … {high:+.1%}), q {parse['q']:.4f}, "
            f"{parse['verdict']}; total {found['total']['change']:+.1%}, {found['total']['verdict']}; "
            f"others told: {others or 'none'}; could find: total {found['detectable']['total']:.1%}; {found['reasons']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="pairs of one build with itself (default: 10)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), options.runs)
        base = machine.build(100)
        for rise in RISES:
            print(f"+{rise:>2} %  {told(machine.compare(base, machine.build(100 + rise)))}", flush=True)
        for number in range(options.pairs):
            print(f"same {number + 1:>2}  {told(machine.compare(base, base))}", flush=True)


if __name__ == "__main__":
    main()
