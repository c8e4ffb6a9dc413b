//! Samples with names, one a line: JSON objects, or rows of CSV. The layouts are versioned: docs/exports.md.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;

use serde::Serialize;

use super::exporter::{ExportSample, Exporter, Source};
use super::folded::part;
use crate::error::Result;
use crate::symbolized::Located;

/// Version of the JSON lines' layout; stands in each line.
const SCHEMA: &str = "rawstack.samples.v1";

#[derive(Serialize)]
struct JsonSample<'s> {
    schema: &'static str,
    time_ns: u64,
    cpu: u32,
    pid: u32,
    tid: u32,
    comm: &'s str,
    process: &'s str,
    cgroup: &'s str,
    event: &'s str,
    unit: &'s str,
    weight: u64,
    run: u32,
    id: u64,
    state: &'static str,
    archive: &'s str,
}

#[derive(Serialize)]
struct JsonFrame<'s> {
    kind: &'static str,
    name: &'s str,
    module: &'s str,
    build_id: Option<&'s str>,
    offset: Option<String>,
    file: Option<&'s str>,
    line: Option<u32>,
    column: Option<u32>,
    inlined: bool,
    reason: Option<&'static str>,
}

/// JSON lines. A frame's text is made when it is first met.
#[derive(Debug, Default)]
pub struct JsonLines {
    frames: HashMap<(Option<u32>, u32), Box<str>>,
}

impl JsonLines {
    fn frame(&mut self, source: &Source<'_>, frame: &Located) -> Result<&str> {
        let key = (frame.place, frame.named);
        let text = match self.frames.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                free.insert(serde_json::to_string(&json_frame(source, frame))?.into())
            }
        };
        Ok(text)
    }
}

fn json_frame<'p>(source: &Source<'p>, located: &Located) -> JsonFrame<'p> {
    let profile = source.profile;
    let frame = profile.frame(located.named);
    let place = located
        .place
        .and_then(|place| profile.places().get(place as usize));
    let module = place.and_then(|place| profile.modules.get(place.module? as usize));
    let not_zero = |number: u32| (number != 0).then_some(number);
    JsonFrame {
        kind: match (located.place, frame.kernel) {
            (None, _) => "end",
            (_, true) => "kernel",
            _ => "user",
        },
        name: profile.text(frame.name),
        module: profile.text(frame.module),
        build_id: module.and_then(|module| module.build_id.as_deref()),
        offset: place.map(|place| format!("{:#x}", place.offset)),
        file: frame.place.file.get().map(|file| profile.text(file)),
        line: not_zero(frame.place.line),
        column: not_zero(frame.place.column),
        inlined: frame.inlined,
        reason: frame.reason.map(|reason| reason.name()),
    }
}

impl Exporter for JsonLines {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let facts = Facts::of(source, sample);
        let row = sample.row.copied().unwrap_or_default();
        let line = serde_json::to_vec(&JsonSample {
            schema: SCHEMA,
            time_ns: row.time_ns,
            cpu: row.cpu,
            pid: row.pid,
            tid: row.tid,
            comm: facts.comm,
            process: facts.process,
            cgroup: facts.cgroup,
            event: source.event(sample),
            unit: facts.unit,
            weight: sample.weight,
            run: row.run,
            id: row.id.0,
            state: row.state.name(),
            archive: facts.archive,
        })?;
        // The frames are the last key of the same object.
        out.write_all(line.strip_suffix(b"}").unwrap_or(&line))?;
        out.write_all(b",\"frames\":[")?;
        for (depth, frame) in sample.stack.iter().enumerate() {
            if depth > 0 {
                out.write_all(b",")?;
            }
            out.write_all(self.frame(source, frame)?.as_bytes())?;
        }
        out.write_all(b"]}\n")?;
        Ok(())
    }
}

/// Text of a sample that is not in its row.
struct Facts<'p> {
    comm: &'p str,
    process: &'p str,
    cgroup: &'p str,
    unit: &'p str,
    archive: &'p str,
}

impl<'p> Facts<'p> {
    fn of(source: &Source<'p>, sample: &ExportSample<'_>) -> Self {
        let profile = source.profile;
        let thread = source.thread(sample);
        let event = profile.events.get(sample.event as usize);
        let archive = thread.and_then(|thread| profile.archives.get(thread.archive as usize));
        Self {
            comm: thread.map_or("", |thread| &thread.comm),
            process: thread.map_or("", |thread| &thread.process_comm),
            cgroup: thread.map_or("", |thread| &thread.cgroup),
            unit: event.map_or("samples", |event| &event.unit),
            archive: archive.map_or("", |archive| &archive.path),
        }
    }
}

/// CSV: a line of headings, a line a sample; the stack as folded stacks have it, root first.
#[derive(Debug, Default)]
pub struct CsvLines {
    parts: HashMap<u32, Box<str>>,
}

const HEADINGS: [&str; 14] = [
    "archive", "time_ns", "cpu", "pid", "tid", "comm", "process", "cgroup", "event", "unit",
    "weight", "run", "state", "stack",
];

impl Exporter for CsvLines {
    fn start(&mut self, _: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        write_record(&HEADINGS, out)
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let facts = Facts::of(source, sample);
        let row = sample.row.copied().unwrap_or_default();
        let mut stack = String::new();
        for frame in sample.stack.iter().rev() {
            if !stack.is_empty() {
                stack.push(';');
            }
            let text = self.parts.entry(frame.named).or_insert_with(|| {
                let frame = source.profile.frame(frame.named);
                part(source.profile.text(frame.name), frame.kernel).into()
            });
            stack.push_str(text);
        }
        let [time, cpu, pid, tid] = [
            row.time_ns.to_string(),
            row.cpu.to_string(),
            row.pid.to_string(),
            row.tid.to_string(),
        ];
        let (weight, run) = (sample.weight.to_string(), row.run.to_string());
        let record = [
            facts.archive,
            &time,
            &cpu,
            &pid,
            &tid,
            facts.comm,
            facts.process,
            facts.cgroup,
            source.event(sample),
            facts.unit,
            &weight,
            &run,
            row.state.name(),
            &stack,
        ];
        write_record(&record, out)
    }
}

fn write_record(record: &[&str], out: &mut dyn Write) -> Result<()> {
    let mut line = csv::Writer::from_writer(Vec::new());
    line.write_record(record)?;
    let line = line.into_inner().map_err(|error| error.into_error())?;
    out.write_all(&line)?;
    Ok(())
}
