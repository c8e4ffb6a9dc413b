//! OpenTelemetry profiles (`opentelemetry.proto.profiles.v1development`): stacks added up by thread.
//!
//! What repeats stands in one dictionary, whose tables begin with an entry that stands for none. A profile has one type
//! of value, so there are two: numbers of samples, and their weight. An archive with very many rows gets several pairs.

use std::io::Write;
use std::mem;

use foldhash::HashMap;

use super::exporter::{ExportSample, Exporter, Source};
use super::mappings::{Mapping, Mappings};
use super::prefix::PrefixTree;
use super::protobuf::Message;
use crate::error::Result;
use crate::profile::ThreadId;
use crate::symbolized::{Located, SymbolizedFrame};

/// Rows of one profile at most.
const ROWS: usize = 1 << 16;

/// Field numbers of `ProfilesDictionary`.
mod table {
    pub(super) const MAPPING: u32 = 1;
    pub(super) const LOCATION: u32 = 2;
    pub(super) const FUNCTION: u32 = 3;
    pub(super) const LINK: u32 = 4;
    pub(super) const STRING: u32 = 5;
    pub(super) const ATTRIBUTE: u32 = 6;
    pub(super) const STACK: u32 = 7;
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Text(String),
    Number(u64),
}

impl Value {
    fn put(&self, any: &mut Message) {
        match self {
            Self::Text(text) => any.text(1, text),
            Self::Number(number) => any.always(3, *number),
        };
    }
}

/// Collects the dictionary, and rows as far as one profile goes.
#[derive(Debug, Default)]
pub struct Otlp {
    dictionary: Message,
    strings: HashMap<String, u64>,
    functions: HashMap<(u64, u64), u64>,
    attributes: HashMap<(&'static str, Value), u64>,
    /// By code address, or by name where there is none.
    locations: HashMap<(Option<u32>, u32), u32>,
    threads: HashMap<ThreadId, Vec<u64>>,
    stacks: PrefixTree,
    /// For each node of the tree the number of its stack in the table.
    stack_numbers: HashMap<u32, u64>,
    mappings: Mappings,
    rows: Vec<Row>,
}

/// What becomes a sample of each profile.
#[derive(Clone, Copy, Debug)]
struct Row {
    stack: u64,
    thread: ThreadId,
    samples: u64,
    weight: u64,
}

/// A name and a unit, as numbers of strings.
type ValueType = (u64, u64);

impl Otlp {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let id = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), id);
        self.dictionary.text(table::STRING, text);
        id
    }

    fn attribute(&mut self, key: &'static str, value: Value) -> u64 {
        let next = self.attributes.len() as u64 + 1;
        let id = *self.attributes.entry((key, value.clone())).or_insert(next);
        if id == next {
            let key = self.string(key);
            self.dictionary.message(table::ATTRIBUTE, |attribute| {
                attribute.number(1, key);
                attribute.message(2, |any| value.put(any));
            });
        }
        id
    }

    fn mapping(&mut self, mapping: &Mapping, identity: Option<(&'static str, String)>) {
        let file = self.string(&mapping.path);
        let attributes: Vec<u64> = identity
            .into_iter()
            .map(|(key, value)| self.attribute(key, Value::Text(value)))
            .collect();
        self.dictionary.message(table::MAPPING, |message| {
            message
                .number(1, mapping.start)
                .number(2, mapping.start.saturating_add(mapping.size))
                .number(3, mapping.offset)
                .number(4, file)
                .numbers(5, attributes);
        });
    }

    fn function(&mut self, source: &Source<'_>, frame: &SymbolizedFrame) -> u64 {
        let text = |id| source.profile.text(id);
        let name = self.string(text(frame.name));
        let file = self.string(frame.place.file.get().map_or("", text));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            self.dictionary.message(table::FUNCTION, |message| {
                message.number(1, name).number(3, file);
            });
        }
        id
    }

    /// The location of frames inlined into one another, innermost first.
    fn location(&mut self, source: &Source<'_>, frames: &[Located]) -> Option<u32> {
        let first = frames.first()?;
        let key = (first.place, first.place.map_or(first.named, |_| 0));
        if let Some(&known) = self.locations.get(&key) {
            return Some(known);
        }
        let id = u32::try_from(self.locations.len() + 1).ok()?;
        self.locations.insert(key, id);
        let profile = source.profile;
        let mut lines = Vec::new();
        for frame in frames.iter().map(|frame| profile.frame(frame.named)) {
            if frame.reason.is_none() || !profile.is_raw() {
                lines.push((self.function(source, &frame), frame.place));
            }
        }
        let kernel = profile.frame(first.named).kernel;
        let kind = if kernel { "kernel" } else { "native" };
        let kind = first
            .place
            .map(|_| self.attribute("profile.frame.type", Value::Text(kind.to_owned())));
        let place = first
            .place
            .and_then(|place| profile.places().get(place as usize));
        let found = place.and_then(|place| self.mappings.find(place));
        let (mapping, address) = found.unwrap_or((0, place.map_or(0, |place| place.offset)));
        self.dictionary.message(table::LOCATION, |message| {
            message.number(1, mapping).number(2, address);
            for (function, place) in lines {
                message.message(3, |line| {
                    line.number(1, function)
                        .number(2, place.line.into())
                        .number(3, place.column.into());
                });
            }
            message.numbers(4, kind);
        });
        Some(id)
    }

    fn thread(&mut self, source: &Source<'_>, thread: ThreadId) {
        if self.threads.contains_key(&thread) {
            return;
        }
        let mut attributes = Vec::new();
        if let Some(facts) = source.profile.thread(thread) {
            let texts = [
                ("thread.name", &facts.comm),
                ("process.executable.name", &facts.process_comm),
                ("process.linux.cgroup", &facts.cgroup),
            ];
            attributes.push(self.attribute("process.pid", Value::Number(facts.pid.into())));
            attributes.push(self.attribute("thread.id", Value::Number(facts.tid.into())));
            for (key, text) in texts {
                if !text.is_empty() {
                    attributes.push(self.attribute(key, Value::Text(text.clone())));
                }
            }
        }
        self.threads.insert(thread, attributes);
    }

    /// Write the rows at hand as a pair of profiles.
    fn flush(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let rows = mem::take(&mut self.rows);
        let (event, period) = source.only_event();
        let unit = if source.unit == "ns" {
            "nanoseconds"
        } else {
            source.unit
        };
        let count = (self.string("samples"), self.string("count"));
        let weight = (self.string(event), self.string(unit));
        let counts = self.profile(source, count, (weight, period), &rows, |row| row.samples);
        let weights = self.profile(source, weight, (weight, period), &rows, |row| row.weight);
        let host = source.host();
        let mut resource = Message::default();
        resource.message(1, |resource| {
            resource.message(1, |resource| {
                let attributes = [("service.name", "rawstack"), ("host.name", host)];
                for (key, value) in attributes
                    .into_iter()
                    .filter(|(_, value)| !value.is_empty())
                {
                    resource.message(1, |attribute| {
                        attribute.text(1, key).message(2, |any| {
                            any.text(1, value);
                        });
                    });
                }
            });
            resource.message(2, |scope| {
                scope.message(1, |scope| {
                    scope.text(1, "rawstack").text(2, env!("CARGO_PKG_VERSION"));
                });
                scope.part(2, counts.bytes());
                if source.unit != "samples" {
                    scope.part(2, weights.bytes());
                }
            });
        });
        out.write_all(resource.bytes())?;
        Ok(())
    }

    fn profile(
        &self,
        source: &Source<'_>,
        (name, unit): ValueType,
        ((period_name, period_unit), period): (ValueType, u64),
        rows: &[Row],
        value: fn(&Row) -> u64,
    ) -> Message {
        let (start, duration) = source.times();
        let mut profile = Message::default();
        profile.message(1, |kind| {
            kind.number(1, name).number(2, unit);
        });
        for row in rows {
            profile.message(2, |sample| {
                let attributes = self.threads.get(&row.thread).cloned().unwrap_or_default();
                sample.number(1, row.stack).numbers(2, attributes);
                sample.numbers(4, [value(row)]);
            });
        }
        profile.fixed(3, start).number(4, duration);
        profile.message(5, |kind| {
            kind.number(1, period_name).number(2, period_unit);
        });
        profile.number(6, period);
        profile
    }
}

impl Exporter for Otlp {
    fn start(&mut self, source: &Source<'_>, _: &mut dyn Write) -> Result<()> {
        self.string("");
        for table in [
            table::MAPPING,
            table::LOCATION,
            table::FUNCTION,
            table::LINK,
            table::ATTRIBUTE,
            table::STACK,
        ] {
            self.dictionary.part(table, &[]);
        }
        self.mappings = Mappings::of(source.profile);
        for mapping in &self.mappings.list().to_vec() {
            let module = source.profile.modules.get(mapping.module as usize);
            let identity = module.and_then(|module| match (&module.build_id, &module.hash) {
                (Some(id), _) => Some(("process.executable.build_id.gnu", id.clone())),
                (None, Some(hash)) => Some(("process.executable.build_id.htlhash", hash.clone())),
                (None, None) => None,
            });
            self.mapping(mapping, identity);
        }
        Ok(())
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let locations: Vec<u32> = sample
            .chains()
            .filter_map(|chain| self.location(source, chain))
            .collect();
        let stack = match self.stacks.add(locations.iter().rev().copied()) {
            None => 0,
            Some(node) => {
                let next = self.stack_numbers.len() as u64 + 1;
                let number = *self.stack_numbers.entry(node).or_insert(next);
                if number == next {
                    self.dictionary.message(table::STACK, |stack| {
                        stack.numbers(1, locations.into_iter().map(u64::from));
                    });
                }
                number
            }
        };
        self.thread(source, sample.thread);
        self.rows.push(Row {
            stack,
            thread: sample.thread,
            samples: sample.samples,
            weight: sample.weight,
        });
        if self.rows.len() == ROWS {
            self.flush(source, out)?;
        }
        Ok(())
    }

    fn finish(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        if !self.rows.is_empty() {
            self.flush(source, out)?;
        }
        let mut data = Message::default();
        data.part(2, self.dictionary.bytes());
        out.write_all(data.bytes())?;
        Ok(())
    }
}
