#!/usr/bin/env python3
"""Write every export of a recording and read each with a program or library of others: all must find what the report says.

`exports.py RAWSTACK ARCHIVE CONSUMERS`: CONSUMERS is the folder that scripts/consumers fills. Prints a line for each format.
"""

import collections
import contextlib
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

RAWSTACK, ARCHIVE, CONSUMERS = sys.argv[1:]
READERS = pathlib.Path(__file__).parent.parent / "symbolizer/exports"
PYTHON = f"{CONSUMERS}/python/bin/python3"


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def export(name: str, *options: str) -> str:
    path = f"{WORK}/{name}"
    run(RAWSTACK, "export", ARCHIVE, "-q", "-o", path, *options)
    return path


def plain(name: str) -> str:
    """A function as folded stacks have it."""
    return name.replace(";", ":").removesuffix("_[k]")


def by_leaf(pairs) -> collections.Counter:
    own = collections.Counter()
    for name, weight in pairs:
        own[plain(name)] += int(weight)
    return +own


def folded(path: str) -> collections.Counter:
    lines = (line.rsplit(" ", 1) for line in open(path).read().splitlines())
    return by_leaf((stack.rsplit(";", 1)[1], weight) for stack, weight in lines)


def pprof(path: str) -> collections.Counter:
    text = run("go", "tool", "pprof", "-top", "-nodefraction=0", "-nodecount=1000000", "-unit=ns", path,
               env={**os.environ, "PPROF_TMPDIR": WORK})
    rows = text[text.index("flat%"):].splitlines()[1:]
    columns = (row.split(maxsplit=5) for row in rows)
    return by_leaf((row[5].removesuffix(" (inline)").removesuffix(" (partial-inline)"), row[0].removesuffix("ns"))
                   for row in columns)


def load(cli: str, path: str, home: dict[str, str]) -> None:
    """It gives its own daemon half a second to start, which is not enough where much else runs."""
    for _ in range(20):
        done = subprocess.run([cli, "load", path], capture_output=True, text=True, env=home)
        if done.returncode == 0:
            return
        slow = re.search(r"may still be running as pid (\d+)", done.stderr)
        assert slow, f"{cli} load {path}: {done.stderr}"
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(slow[1]), signal.SIGKILL)
    raise AssertionError(f"{cli} load {path}: never ready: {done.stderr}")


def firefox(path: str) -> collections.Counter:
    cli, home = f"{CONSUMERS}/js/node_modules/.bin/profiler-cli", {**os.environ, "HOME": WORK}
    load(cli, path, home)
    try:
        own = collections.Counter()
        for thread in json.loads(run(cli, "thread", "list", "--json", env=home))["threads"]:
            table = run(cli, "thread", "functions", "--include-idle", "--limit", "0", "--json",
                        "--thread", thread["threadHandle"], env=home)
            for row in json.loads(table)["functions"]:
                own[plain(row["name"])] += round(row["selfSamples"] * 1e6)
        return +own
    finally:
        subprocess.run([cli, "stop", "--all"], env=home, capture_output=True)


def perf_script(path: str) -> collections.Counter:
    """Samples are blocks of a heading, which has the weight before the event, and frames, leaf first."""
    own = collections.Counter()
    for block in open(path).read().strip().split("\n\n"):
        heading, *frames = block.splitlines()
        weight = re.search(r": +(\d+) \S+: *$", heading).group(1)
        name = re.match(r"\s*[0-9a-f]+ (.*) \(.*?\)$", frames[0]).group(1)
        own[plain(name)] += int(weight)
    return +own


def json_lines(path: str) -> collections.Counter:
    samples = [json.loads(line) for line in open(path)]
    return by_leaf((sample["frames"][0]["name"], sample["weight"]) for sample in samples)


def csv_rows(path: str) -> collections.Counter:
    return by_leaf((row["stack"].rsplit(";", 1)[-1], row["weight"]) for row in csv.DictReader(open(path, newline="")))


def reader(script: str):
    def read(path: str) -> collections.Counter:
        totals = json.loads(run(PYTHON, "-B", str(READERS / script), path))
        own = by_leaf(totals["self"].items())
        for name, total in totals["cumulative"].items():
            assert CUMULATIVE.get(name, total) == total, f"{script}: {name}: {total}, not {CUMULATIVE[name]}"
        return own
    return read


FORMATS = {
    "folded": folded,
    "pprof": pprof,
    "firefox": firefox,
    "speedscope": reader("speedscope.py"),
    "perfetto": reader("perfetto_trace.py"),
    "otlp": reader("otlp.py"),
    "parquet": reader("parquet.py"),
    "perf-script": perf_script,
    "json": json_lines,
    "csv": csv_rows,
}

with tempfile.TemporaryDirectory() as WORK:
    report = json.loads(run(RAWSTACK, "report", ARCHIVE, "--json", "-q"))
    own = by_leaf((row["name"], row["self"]) for row in report["rows"])
    assert own.total() == report["total"] > 0
    # Functions of one name are one to most programs, and their totals no sum.
    names = collections.Counter(row["name"] for row in report["rows"])
    CUMULATIVE = {row["name"]: row["total"] for row in report["rows"] if names[row["name"]] == 1}
    for format, read in FORMATS.items():
        found = read(export(f"recorded.{format}", "--format", format))
        if format == "firefox":
            # Its numbers are milliseconds with a fraction.
            assert all(abs(found[name] - own[name]) <= 1000 for name in found | own), (found - own, own - found)
        else:
            assert found == own, f"{format}: {found - own}, {own - found}"
        print(f"{format}: {len(found)} functions as in the report, {own.total()} {report['unit']}")
