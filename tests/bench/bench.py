#!/usr/bin/env python3
"""Measure Rawstack and its peers side by side, in one go. `make bench` runs it; `--help` tells of its options."""

import argparse
import os
import sys

import blocking
import comparing
import copying
import living
import pictures
import recording
import resolving
import unwinding
from measure import Failed, run
from peers import FOLDER
from table import Row, print_row, write

ROWS = {**recording.ROWS, **copying.ROWS, **unwinding.ROWS, **blocking.ROWS, **living.ROWS, **resolving.ROWS, **pictures.ROWS, **comparing.ROWS}


def host_facts() -> dict[str, str]:
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"kernel": os.uname().release, "cpus": str(os.cpu_count()), "cpu": models[0] if models else "unknown"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one or more of: {' '.join(ROWS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of what is repeated (default: 5)")
    parser.add_argument("--cost-seconds", type=float, default=60, help="length of the recording of row cost (default: 60)")
    parser.add_argument("--churn-seconds", type=float, default=30, help="length of row churn (default: 30; an hour: 3600)")
    options = parser.parse_args()
    living.cost_seconds, living.churn_seconds = options.cost_seconds, options.churn_seconds
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error(f"no such row: {' '.join(unknown)}")
    if os.geteuid() != 0:
        parser.error("recording needs root: use make bench")

    host = host_facts()
    print(f"kernel {host['kernel']}, {host['cpus']} CPUs, {host['cpu']}")
    print("Under 1x is better than that peer.")
    # What other work does here goes into every figure.
    print(f"load before the start: {os.getloadavg()[0]:.2f}")
    rows: list[Row] = []
    failed = []
    for name in options.rows or ROWS:
        try:
            made = ROWS[name](options.repeats)
        except Failed as failure:
            failed.append(name)
            print(f"\n{name}: FAILED: {failure}")
            continue
        for row in made:
            print_row(row)
        rows += made
    print(f"\nwritten to {write(rows, FOLDER, host)}")
    return 1 if failed else 0


if __name__ == "__main__":
    # Peers differ in what they read of these.
    for variable in ("DEBUGINFOD_URLS", "PERF_CONFIG"):
        os.environ.pop(variable, None)
    sys.exit(main())
