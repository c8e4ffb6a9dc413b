"""Read a dataset with DuckDB, and again with pyarrow: both must find the same; print the totals by function."""

import collections
import datetime
import pathlib
import sys

import duckdb
import pyarrow.dataset
from totals import Totals

folder = pathlib.Path(sys.argv[1])
TABLES = "recordings events runs modules samples stacks frames symbols".split()
database = duckdb.connect()
for name in TABLES:
    files = f"{folder}/{name}/**/*.parquet"
    database.execute(f"create view {name} as from read_parquet('{files}', hive_partitioning = true)")


def by_function(query):
    return {function: int(weight) for function, weight in database.execute(query).fetchall()}


# The queries of docs/exports.md, for all functions.
own = by_function("""
    select function, sum(weight) from samples
    join stacks using (recording_id, stack_id)
    join symbols on symbols.recording_id = stacks.recording_id and frame_id = leaf_frame_id and symbols.depth = 0
    group by all
""")
cumulative = by_function("""
    with frame_of as (select recording_id, stack_id, unnest(frames) as frame_id from stacks),
    function_of as (
        select distinct recording_id, stack_id, function from frame_of join symbols using (recording_id, frame_id)
    )
    select function, sum(weight) from samples join function_of using (recording_id, stack_id) group by all
""")
total, count = database.execute("select sum(weight)::bigint, sum(count)::bigint from samples").fetchone()

rows = {
    name: pyarrow.dataset.dataset(folder / name, format="parquet", partitioning="hive").to_table().to_pylist()
    for name in TABLES
}
key = lambda row, column: (row["recording_id"], row[column])
names = collections.defaultdict(dict)
for row in rows["symbols"]:
    assert row["depth"] not in names[key(row, "frame_id")], "a frame stands there twice"
    names[key(row, "frame_id")][row["depth"]] = row["function"]
stacks = {key(row, "stack_id"): row for row in rows["stacks"]}
assert len(stacks) == len(rows["stacks"]), "a stack stands there twice"
frames = {key(row, "frame_id"): row for row in rows["frames"]}
assert len(frames) == len(rows["frames"]), "a frame stands there twice"
modules = {key(row, "module_id"): row for row in rows["modules"]}
totals = Totals()
for sample in rows["samples"]:
    stack = stacks[key(sample, "stack_id")]
    assert stack["depth"] == len(stack["frames"]) and stack["leaf_frame_id"] == stack["frames"][0]
    functions = []
    for frame in stack["frames"]:
        frame = (sample["recording_id"], frame)
        functions += [name for _, name in sorted(names[frame].items())]
        module = frames[frame]["module_id"]
        assert module is None or modules[sample["recording_id"], module]["build_id"] == frames[frame]["build_id"]
    totals.add(functions, sample["weight"])
assert (totals.total, totals.own, totals.cumulative) == (total, own, cumulative), (own, totals.own)
assert len(rows["samples"]) == count
recordings = {row["recording_id"]: row for row in rows["recordings"]}
assert len(recordings) == len(rows["recordings"])
assert sum(row["samples"] for row in recordings.values()) >= count
for sample in rows["samples"]:
    recording = recordings[sample["recording_id"]]
    assert recording["start_ns"] <= sample["ts_ns"] <= recording["end_ns"]
    day = datetime.datetime.fromtimestamp(recording["start_ns"] / 1e9, datetime.timezone.utc).date()
    assert sample["date"] in (day, str(day)) and sample["service"] == (recording["service"] or "unknown"), sample
units = {(row["recording_id"], row["event"]): row["unit"] for row in rows["events"]}
assert all((sample["recording_id"], sample["event"]) in units for sample in rows["samples"])
golden = "golden" in sys.argv[2:]
assert not golden or {row["build_id"] for row in rows["modules"]} >= {"00112233445566778899aabbccddeeff00112233"}
totals.print()
