"""Read profiles with OpenTelemetry's own Python types, check the rules of the dictionary, and add the stacks up."""

import pathlib
import sys

from opentelemetry.proto.profiles.v1development import profiles_pb2
from totals import Totals

GOLDEN = "golden" in sys.argv[2:]
data = profiles_pb2.ProfilesData()
data.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
tables = data.dictionary
for table in ("mapping", "location", "function", "link", "attribute", "stack"):
    rows = getattr(tables, table + "_table")
    assert rows and not rows[0].ByteSize(), table
assert tables.string_table[0] == "" and len(set(tables.string_table)) == len(tables.string_table)
strings = tables.string_table


def attributes(indices):
    rows = [tables.attribute_table[index] for index in indices]
    assert all(indices), "0 stands for none"
    return {strings[row.key_strindex]: row.value.string_value or row.value.int_value for row in rows}


def names(location):
    if location.mapping_index:
        mapping = tables.mapping_table[location.mapping_index]
        assert mapping.memory_start <= location.address < mapping.memory_limit
    return [strings[tables.function_table[line.function_index].name_strindex] for line in location.lines]


ids = [attributes(mapping.attribute_indices) for mapping in tables.mapping_table]
assert not GOLDEN or {"process.executable.build_id.gnu": "00112233445566778899aabbccddeeff00112233"} in ids
totals, counts, threads = Totals(), 0, set()
for resource in data.resource_profiles:
    for scope in resource.scope_profiles:
        for profile in scope.profiles:
            kind = (strings[profile.sample_type.type_strindex], strings[profile.sample_type.unit_strindex])
            assert kind in (("samples", "count"), ("cpu-clock", "nanoseconds")), kind
            assert not GOLDEN or profile.time_unix_nano == 1_764_000_000_000_000_000
            assert profile.time_unix_nano and profile.duration_nano
            for sample in profile.samples:
                (value,) = sample.values
                facts = attributes(sample.attribute_indices)
                threads.add((facts["process.pid"], facts["thread.id"], facts["thread.name"]))
                if kind[0] == "samples":
                    counts += value
                    continue
                stack = tables.stack_table[sample.stack_index].location_indices
                totals.add([name for index in stack for name in names(tables.location_table[index])], value)
assert counts
if GOLDEN:
    assert counts * 1_000_000 == totals.total, (counts, totals.total)
    assert (100, 101, "worker") in threads, threads
totals.print()
