//! The tables, column by column. docs/exports.md has them for users.

use parquet::data_type::ByteArray;
use rawstack_format::record::{Event, Recording, Run};

use super::columns::{Column, Values, column, nullable};
use super::context::{
    Context, FrameRow, ModuleRow, SampleRow, StackRow, SymbolRow, ThreadTexts, signed, signed32,
    text,
};
use crate::profile::Summary;

/// The column that each table begins with.
fn recording_id<R>() -> Column<R> {
    let get = |context: &Context, _: &R| Some(context.recording.clone());
    column("recording_id", Values::SharedId(get))
}

/// What is told of a recording.
pub(super) struct RecordingRow<'p> {
    pub(super) archive: &'p Summary,
    pub(super) service: Option<String>,
}

impl RecordingRow<'_> {
    fn recording(&self) -> Option<&Recording> {
        self.archive.recording.as_ref()
    }

    fn host(&self, name: &str) -> Option<ByteArray> {
        find(&self.recording()?.host, name)
    }

    fn label(&self, name: &str) -> Option<ByteArray> {
        find(&self.recording()?.labels, name)
    }
}

fn find(pairs: &[(String, String)], name: &str) -> Option<ByteArray> {
    let found = pairs.iter().find(|(key, _)| key == name);
    found
        .map(|(_, value)| text(value))
        .filter(|value| !value.is_empty())
}

/// Each key once, as engines want it: the first of several.
fn map(pairs: Option<&[(String, String)]>) -> Vec<(ByteArray, ByteArray)> {
    let mut seen: Vec<(ByteArray, ByteArray)> = Vec::new();
    for (key, value) in pairs.unwrap_or_default() {
        let key = text(key);
        if !seen.iter().any(|(held, _)| *held == key) {
            seen.push((key, text(value)));
        }
    }
    seen
}

/// `recordings`: one row.
pub(super) fn recordings<'p>() -> Vec<Column<RecordingRow<'p>>> {
    use Values::{Int32, Int64, Map, Text};
    vec![
        recording_id(),
        nullable("host", Text(|_, row| row.host("hostname"))),
        nullable("boot_id", Text(|_, row| row.host("boot_id"))),
        nullable("kernel", Text(|_, row| row.host("kernel_release"))),
        nullable("arch", Text(|_, row| row.host("machine"))),
        nullable("cpu_model", Text(|_, row| row.host("cpu_model"))),
        nullable("service", Text(|_, row| row.service.as_deref().map(text))),
        nullable("version", Text(|_, row| row.label("version"))),
        nullable("git_sha", Text(|_, row| row.label("git_sha"))),
        column(
            "start_ns",
            Int64(|_, row| Some(signed(start_wall_ns(row.archive)))),
        ),
        column(
            "end_ns",
            Int64(|_, row| Some(signed(wall_ns(row.archive, row.archive.end_ns())))),
        ),
        column(
            "start_monotonic_ns",
            Int64(|_, row| Some(signed(row.archive.start_ns()))),
        ),
        column("samples", Int64(|_, row| Some(signed(row.archive.samples)))),
        column("lost", Int64(|_, row| Some(signed(lost(row.archive))))),
        column(
            "runs",
            Int32(|_, row| i32::try_from(row.archive.runs.len()).ok()),
        ),
        nullable(
            "recorder",
            Text(|_, row| row.recording().map(|recording| text(&recording.writer))),
        ),
        column(
            "labels",
            Map(|_, row| map(row.recording().map(|recording| &recording.labels[..]))),
        ),
        column(
            "options",
            Map(|_, row| map(row.recording().map(|recording| &recording.options[..]))),
        ),
    ]
}

/// When a recording was started by the wall clock; 0 where that is lost.
pub(super) fn start_wall_ns(archive: &Summary) -> u64 {
    let recording = archive.recording.as_ref();
    recording.map_or(0, |recording| recording.start_wall_ns)
}

/// A time of the monotonic clock by the wall clock, as both stood when the recording was started.
pub(super) fn wall_ns(archive: &Summary, time_ns: u64) -> u64 {
    let since = time_ns.wrapping_sub(archive.start_ns());
    start_wall_ns(archive).wrapping_add(since)
}

fn lost(archive: &Summary) -> u64 {
    let counts = archive.drops.values().map(|drop| drop.count);
    counts.fold(0, u64::saturating_add)
}

/// `events`: what was sampled.
pub(super) fn events() -> Vec<Column<Event>> {
    use Values::{Int64, Text};
    vec![
        recording_id(),
        column("event", Text(|_, row| Some(text(&row.name)))),
        column("unit", Text(|_, row| Some(text(&row.unit)))),
        column("period", Int64(|_, row| Some(signed(row.period)))),
        column("freq_hz", Int64(|_, row| Some(signed(row.frequency)))),
    ]
}

/// A run, and its times by the wall clock.
pub(super) struct RunRow {
    pub(super) run: Run,
    pub(super) start_ns: u64,
    pub(super) end_ns: Option<u64>,
}

/// `runs`: repetitions of the command.
pub(super) fn runs() -> Vec<Column<RunRow>> {
    use Values::{Double, Int32, Int64};
    vec![
        recording_id(),
        column("run_index", Int32(|_, row| Some(signed32(row.run.run)))),
        column("start_ns", Int64(|_, row| Some(signed(row.start_ns)))),
        nullable("end_ns", Int64(|_, row| row.end_ns.map(signed))),
        nullable(
            "work",
            Double(|_, row| Some(row.run.work).filter(|&work| work != 0.0)),
        ),
        nullable(
            "exit_status",
            Int32(|_, row| row.end_ns.map(|_| row.run.exit)),
        ),
    ]
}

/// `modules`: files with code, and what stands for them.
pub(super) fn modules() -> Vec<Column<ModuleRow>> {
    use Values::{OwnId, Text};
    vec![
        recording_id(),
        column("module_id", OwnId(|_, row| Some(row.module.clone()))),
        nullable("build_id", Text(|_, row| row.build_id.clone())),
        nullable("htlhash", Text(|_, row| row.hash.clone())),
        column("path", Text(|_, row| Some(row.path.clone()))),
    ]
}

fn thread<'c>(context: &'c Context, row: &SampleRow) -> Option<&'c ThreadTexts> {
    context.threads.get(row.thread as usize)
}

/// `samples`: each sample.
pub(super) fn samples() -> Vec<Column<SampleRow>> {
    use Values::{Int32, Int64, Rising, SharedId, Text};
    vec![
        recording_id(),
        column("run_index", Int32(|_, row| Some(signed32(row.run)))),
        column("ts_ns", Rising(|_, row| Some(signed(row.time_ns)))),
        column("cpu", Int32(|_, row| Some(signed32(row.cpu)))),
        column(
            "pid",
            Int32(|context, row| thread(context, row).map(|thread| signed32(thread.pid))),
        ),
        column(
            "tid",
            Int32(|context, row| thread(context, row).map(|thread| signed32(thread.tid))),
        ),
        column(
            "comm",
            Text(|context, row| thread(context, row).map(|thread| thread.comm.clone())),
        ),
        column(
            "process",
            Text(|context, row| thread(context, row).map(|thread| thread.process.clone())),
        ),
        column(
            "cgroup",
            Text(|context, row| thread(context, row).map(|thread| thread.cgroup.clone())),
        ),
        column(
            "event",
            Text(|context, row| context.events.get(row.event as usize).cloned()),
        ),
        column(
            "state",
            Text(|context, row| context.states.get(usize::from(row.state)).cloned()),
        ),
        column(
            "stack_id",
            SharedId(|context, row| context.stacks.get(row.stack as usize).cloned()),
        ),
        column("weight", Int64(|_, row| Some(signed(row.weight)))),
        column("count", Int64(|_, _| Some(1))),
    ]
}

/// `stacks`: each distinct one.
pub(super) fn stacks() -> Vec<Column<StackRow>> {
    use Values::{Bool, Ids, Int32, OwnId, SharedId};
    vec![
        recording_id(),
        column(
            "stack_id",
            OwnId(|context, row| context.stacks.get(row.stack as usize).cloned()),
        ),
        column(
            "depth",
            Int32(|_, row| i32::try_from(row.frames.len()).ok()),
        ),
        column("truncated", Bool(|_, row| Some(row.is_truncated))),
        column(
            "frames",
            Ids(|context, row| {
                let ids = |&frame: &u32| context.frames.get(frame as usize).cloned();
                row.frames.iter().filter_map(ids).collect()
            }),
        ),
        nullable(
            "leaf_frame_id",
            SharedId(|context, row| {
                let leaf = *row.frames.first()?;
                context.frames.get(leaf as usize).cloned()
            }),
        ),
    ]
}

/// `frames`: each distinct code address.
pub(super) fn frames() -> Vec<Column<FrameRow>> {
    use Values::{Int64, OwnId, SharedId, Text};
    vec![
        recording_id(),
        column(
            "frame_id",
            OwnId(|context, row| context.frames.get(row.frame as usize).cloned()),
        ),
        column("kind", Text(|_, row| Some(text(row.kind)))),
        nullable("module_id", SharedId(|_, row| row.module.clone())),
        nullable("build_id", Text(|_, row| row.build_id.clone())),
        nullable("file_offset", Int64(|_, row| row.offset)),
    ]
}

/// `symbols`: the functions at each frame, innermost first.
pub(super) fn symbols() -> Vec<Column<SymbolRow>> {
    use Values::{Bool, Int32, OwnId, Text};
    vec![
        recording_id(),
        column("frame_id", OwnId(|_, row| Some(row.frame.clone()))),
        column("depth", Int32(|_, row| Some(signed32(row.depth)))),
        column("function", Text(|_, row| Some(row.function.clone()))),
        column("module", Text(|_, row| Some(row.module.clone()))),
        nullable("file", Text(|_, row| row.file.clone())),
        nullable("line", Int32(|_, row| row.line)),
        nullable("column", Int32(|_, row| row.column)),
        column("inlined", Bool(|_, row| Some(row.is_inlined))),
        nullable("reason", Text(|_, row| row.reason.clone())),
    ]
}
