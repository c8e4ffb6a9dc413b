"""Read a trace with Perfetto's own Python types, resolve what is interned, and add the stacks up."""

import pathlib
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from totals import Totals

trace = perfetto_trace_pb2.Trace()
trace.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
tables, processes, threads = {}, {}, {}
totals, samples, builds, clocks, last = Totals(), 0, set(), {}, 0
names = "function_names source_paths build_ids mapping_paths mappings frames callstacks"
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    for clock in packet.clock_snapshot.clocks:
        clocks[clock.clock_id] = clock.timestamp
    for table in names.split():
        for entry in getattr(packet.interned_data, table):
            assert entry.iid and (table, entry.iid) not in tables
            tables[table, entry.iid] = entry
    for process in packet.process_tree.processes:
        processes[process.pid] = process.cmdline[0]
    for thread in packet.process_tree.threads:
        threads[thread.tid] = (thread.tgid, thread.name)
    if packet.HasField("trace_packet_defaults"):
        assert packet.sequence_flags == packet.SEQ_INCREMENTAL_STATE_CLEARED
        defaults = packet.trace_packet_defaults
        assert defaults.timestamp_clock_id == 3
        counter = defaults.stack_sample_defaults.primary_descriptor
        assert (counter.name, counter.unit) == ("cpu-clock", 1), counter
    if not packet.HasField("stack_sample"):
        continue
    assert packet.sequence_flags == packet.SEQ_NEEDS_INCREMENTAL_STATE
    sample = packet.stack_sample
    assert threads[sample.task_context.tid][0] == sample.task_context.pid
    stack = []
    for iid in reversed(tables["callstacks", sample.callstack_iid].frame_ids):
        frame = tables["frames", iid]
        stack.append(tables["function_names", frame.function_name_id].str.decode())
        if frame.mapping_id:
            mapping = tables["mappings", frame.mapping_id]
            builds.add(tables["build_ids", mapping.build_id].str.hex())
            size = mapping.end - mapping.start
            assert mapping.exact_offset <= frame.rel_pc - mapping.load_bias < mapping.exact_offset + size
    totals.add(stack, sample.primary_weight)
    samples += 1
assert samples and clocks[3] and clocks[1]
if "golden" in sys.argv[2:]:
    assert samples * 1_000_000 == totals.total
    assert clocks == {3: 1_000_000_000, 1: 1_764_000_000_000_000_000}, clocks
    assert "00112233445566778899aabbccddeeff00112233" in builds, builds
    assert processes[100] == "server" and threads[101] == (100, "worker")
totals.print()
