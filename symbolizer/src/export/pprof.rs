//! pprof's `profile.proto`: samples added up by stack and thread. To be compressed with gzip by who writes the file.
//!
//! Addresses are made up: each part of a file that holds code gets a range of its own, so that one address means one
//! place whatever the processes' layouts were. A part starts at a page boundary as the loader maps it, so pprof finds
//! the way back to the file and can resolve a raw export by itself.

use std::io::Write;

use foldhash::HashMap;

use super::exporter::{ExportSample, Exporter, Source};
use super::mappings::{Mapping, Mappings};
use super::protobuf::Message;
use crate::error::Result;
use crate::symbolized::{Located, SymbolizedFrame};

/// Field numbers of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Writes the fields of one profile, each table's entry where it is first needed.
#[derive(Debug, Default)]
pub struct Pprof {
    strings: HashMap<String, u64>,
    /// By name and file, both as numbers of strings.
    functions: HashMap<(u64, u64), u64>,
    /// By code address, or by name where there is none.
    locations: HashMap<(Option<u32>, u32), u64>,
    mappings: Mappings,
    /// Whether samples have a weight beside their number.
    weighted: bool,
    /// What is to be written.
    pending: Message,
}

impl Pprof {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let id = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), id);
        self.pending.text(profile::STRING_TABLE, text);
        id
    }

    fn value_type(&mut self, field: u32, (name, unit): (&str, &str)) {
        let (name, unit) = (self.string(name), self.string(unit));
        self.pending.message(field, |value| {
            value.number(1, name).number(2, unit);
        });
    }

    fn flush(&mut self, out: &mut dyn Write) -> Result<()> {
        out.write_all(self.pending.bytes())?;
        self.pending.clear();
        Ok(())
    }

    fn mapping(&mut self, id: u64, mapping: &Mapping, build_id: Option<&str>, names: bool) {
        let file = self.string(&mapping.path);
        let build_id = self.string(build_id.unwrap_or_default());
        self.pending.message(profile::MAPPING, |message| {
            message
                .number(1, id)
                .number(2, mapping.start)
                .number(3, mapping.start.saturating_add(mapping.size))
                .number(4, mapping.offset)
                .number(5, file)
                .number(6, build_id);
            // With these set nobody looks for names again.
            for field in 7..=10 {
                message.number(field, u64::from(names));
            }
        });
    }

    fn function(&mut self, source: &Source<'_>, frame: &SymbolizedFrame) -> u64 {
        let text = |id| source.profile.text(id);
        let name = self.string(text(frame.name));
        let file = self.string(frame.place.file.get().map_or("", text));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            self.pending.message(profile::FUNCTION, |message| {
                message.number(1, id).number(2, name).number(4, file);
            });
        }
        id
    }

    /// The location of frames inlined into one another, innermost first.
    fn location(&mut self, source: &Source<'_>, frames: &[Located]) -> Option<u64> {
        let first = frames.first()?;
        let key = (first.place, first.place.map_or(first.named, |_| 0));
        if let Some(&known) = self.locations.get(&key) {
            return Some(known);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(key, id);
        let profile = source.profile;
        let mut lines = Vec::new();
        for frame in frames.iter().map(|frame| profile.frame(frame.named)) {
            if frame.reason.is_none() || !profile.is_raw() {
                lines.push((self.function(source, &frame), frame.place));
            }
        }
        let place = first
            .place
            .and_then(|place| profile.places().get(place as usize));
        let found = place.and_then(|place| self.mappings.find(place));
        let (mapping, address) = found.unwrap_or((0, place.map_or(0, |place| place.offset)));
        self.pending.message(profile::LOCATION, |message| {
            message.number(1, id).number(2, mapping).number(3, address);
            for (function, place) in lines {
                message.message(4, |line| {
                    line.number(1, function)
                        .number(2, place.line.into())
                        .number(3, place.column.into());
                });
            }
        });
        Some(id)
    }

    /// Labels of a sample, by key: what pprof is to select as a number has to be one.
    fn labels(&mut self, source: &Source<'_>, sample: &ExportSample<'_>) -> Vec<(u64, Label)> {
        let Some(thread) = source.thread(sample) else {
            return Vec::new();
        };
        let archives = &source.profile.archives;
        let archive = match archives.get(thread.archive as usize) {
            Some(archive) if archives.len() > 1 => archive.path.as_str(),
            _ => "",
        };
        let texts = [
            ("archive", archive),
            ("cgroup", thread.cgroup.as_str()),
            ("comm", thread.comm.as_str()),
            ("process", thread.process_comm.as_str()),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let mut labels: Vec<_> = texts
            .map(|(key, text)| (self.string(key), Label::Text(self.string(text))))
            .collect();
        for (key, number) in [("pid", thread.pid), ("tid", thread.tid)] {
            labels.push((self.string(key), Label::Number(number.into())));
        }
        labels
    }
}

/// Value of a label.
enum Label {
    /// Number of a string.
    Text(u64),
    Number(u64),
}

/// What pprof calls a weight of this event in this unit.
fn value_type<'n>(event: &'n str, unit: &'n str) -> (&'n str, &'n str) {
    let name = if event == "cpu-clock" { "cpu" } else { event };
    match unit {
        "ns" => (name, "nanoseconds"),
        "bytes" => (name, "bytes"),
        _ => (name, "count"),
    }
}

impl Exporter for Pprof {
    fn start(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        self.string("");
        let (event, period) = source.only_event();
        let weight = value_type(event, source.unit);
        self.weighted = source.unit != "samples";
        self.value_type(profile::SAMPLE_TYPE, ("samples", "count"));
        if self.weighted {
            self.value_type(profile::SAMPLE_TYPE, weight);
            self.value_type(profile::PERIOD_TYPE, weight);
            let default = self.string(weight.0);
            self.pending.number(profile::DEFAULT_SAMPLE_TYPE, default);
            self.pending.number(profile::PERIOD, period);
        }
        let (start, duration) = source.times();
        self.pending.number(profile::TIME_NANOS, start);
        self.pending.number(profile::DURATION_NANOS, duration);
        self.mappings = Mappings::of(source.profile);
        let mappings = self.mappings.list().to_vec();
        for (id, mapping) in (1..).zip(&mappings) {
            let module = source.profile.modules.get(mapping.module as usize);
            let build_id = module.and_then(|module| module.build_id.as_deref());
            self.mapping(id, mapping, build_id, !source.profile.is_raw());
        }
        self.flush(out)
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let locations: Vec<u64> = sample
            .chains()
            .filter_map(|chain| self.location(source, chain))
            .collect();
        let labels = self.labels(source, sample);
        let weight = self.weighted.then_some(sample.weight);
        self.pending.message(profile::SAMPLE, |message| {
            message.numbers(1, locations);
            message.numbers(2, [sample.samples].into_iter().chain(weight));
            for (key, value) in labels {
                message.message(3, |label| {
                    label.number(1, key);
                    match value {
                        Label::Text(text) => label.number(2, text),
                        Label::Number(number) => label.always(3, number),
                    };
                });
            }
        });
        self.flush(out)
    }

    fn finish(&mut self, _: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        self.flush(out)
    }
}
