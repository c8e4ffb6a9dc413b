//! speedscope's own format: a profile for each thread, its stacks added up.
//!
//! Its readers take the last inlined function of a pprof location only, so they are better served with this.

use std::collections::BTreeMap;
use std::io::Write;

use foldhash::HashMap;
use serde::Serialize;

use super::exporter::{ExportSample, Exporter, Source};
use super::prefix::PrefixTree;
use crate::error::Result;
use crate::profile::ThreadId;
use crate::text::StringId;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Collects the stacks of each thread.
#[derive(Debug, Default)]
pub struct Speedscope {
    stacks: PrefixTree,
    /// Frames as they are shown: one name in one file is one frame, whatever the line.
    frames: Vec<(StringId, Option<StringId>)>,
    index: HashMap<(StringId, Option<StringId>), u32>,
    threads: BTreeMap<ThreadId, Vec<(Option<u32>, u64)>>,
}

#[derive(Serialize)]
struct Frame<'p> {
    name: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'p str>,
}

#[derive(Serialize)]
struct Head<'p> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'p str,
}

#[derive(Serialize)]
struct ThreadHead<'p> {
    r#type: &'static str,
    name: &'p str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
}

impl Speedscope {
    fn frame(&mut self, source: &Source<'_>, named: u32) -> u32 {
        let frame = source.profile.frame(named);
        let key = (frame.name, frame.place.file.get());
        let next = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let id = *self.index.entry(key).or_insert(next);
        if id == next {
            self.frames.push(key);
        }
        id
    }

    fn write_thread(
        &self,
        source: &Source<'_>,
        (thread, rows): (ThreadId, &[(Option<u32>, u64)]),
        out: &mut dyn Write,
    ) -> Result<()> {
        let name = source
            .profile
            .thread(thread)
            .map_or_else(String::new, |facts| {
                format!("{} (pid {}, tid {})", facts.comm, facts.pid, facts.tid)
            });
        let weights = rows.iter().map(|(_, weight)| *weight);
        let head = ThreadHead {
            r#type: "sampled",
            name: &name,
            unit: unit(source.unit),
            start: 0,
            end: weights.clone().fold(0, u64::saturating_add),
        };
        write_open(&head, out)?;
        out.write_all(b",\"samples\":[")?;
        for (number, (leaf, _)) in rows.iter().enumerate() {
            let mut stack: Vec<u32> = leaf
                .iter()
                .flat_map(|&leaf| self.stacks.stack(leaf))
                .collect();
            stack.reverse();
            separate(number, out)?;
            serde_json::to_writer(&mut *out, &stack)?;
        }
        out.write_all(b"],\"weights\":[")?;
        for (number, weight) in weights.enumerate() {
            separate(number, out)?;
            write!(out, "{weight}")?;
        }
        out.write_all(b"]}")?;
        Ok(())
    }
}

/// An object whose last brace is still to come.
pub(super) fn write_open(object: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    let text = serde_json::to_vec(object)?;
    out.write_all(text.strip_suffix(b"}").unwrap_or(&text))?;
    Ok(())
}

/// A comma before all but the first.
pub(super) fn separate(number: usize, out: &mut dyn Write) -> Result<()> {
    if number > 0 {
        out.write_all(b",")?;
    }
    Ok(())
}

/// What speedscope calls a unit, of those that it knows.
fn unit(unit: &str) -> &'static str {
    match unit {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    }
}

impl Exporter for Speedscope {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        _: &mut dyn Write,
    ) -> Result<()> {
        let frames: Vec<u32> = sample
            .stack
            .iter()
            .rev()
            .map(|frame| self.frame(source, frame.named))
            .collect();
        let leaf = self.stacks.add(frames.into_iter());
        let rows = self.threads.entry(sample.thread).or_default();
        rows.push((leaf, sample.weight));
        Ok(())
    }

    fn finish(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let (event, _) = source.only_event();
        let head = Head {
            schema: SCHEMA,
            exporter: concat!("rawstack ", env!("CARGO_PKG_VERSION")),
            name: event,
        };
        write_open(&head, out)?;
        out.write_all(b",\"shared\":{\"frames\":[")?;
        for (number, &(name, file)) in self.frames.iter().enumerate() {
            separate(number, out)?;
            let frame = Frame {
                name: source.profile.text(name),
                file: file.map(|file| source.profile.text(file)),
            };
            serde_json::to_writer(&mut *out, &frame)?;
        }
        out.write_all(b"]},\"profiles\":[")?;
        for (number, (thread, rows)) in self.threads.iter().enumerate() {
            separate(number, out)?;
            self.write_thread(source, (*thread, rows), out)?;
        }
        out.write_all(b"]}\n")?;
        Ok(())
    }
}
