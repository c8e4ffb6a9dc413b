//! Perfetto: a trace with a packet for each sample, written as samples come.
//!
//! Times are of the recorded host's monotonic clock, which the trace takes as its own. Hosts do not share that clock, so
//! a trace is of one archive.

use std::io::Write;

use foldhash::{HashMap, HashSet};

use super::exporter::{ExportSample, Exporter, Source};
use super::mappings::Mappings;
use super::prefix::PrefixTree;
use super::protobuf::Message;
use crate::error::{Error, Result};
use crate::profile::ThreadId;
use crate::symbolized::Located;

/// Field numbers of `TracePacket`.
mod packet {
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const FIRST: u32 = 87;
    pub(super) const STACK_SAMPLE: u32 = 135;
}

/// Field numbers of `InternedData`.
mod interned {
    pub(super) const FUNCTION_NAMES: u32 = 5;
    pub(super) const FRAMES: u32 = 6;
    pub(super) const CALLSTACKS: u32 = 7;
    pub(super) const BUILD_IDS: u32 = 16;
    pub(super) const MAPPING_PATHS: u32 = 17;
    pub(super) const SOURCE_PATHS: u32 = 18;
    pub(super) const MAPPINGS: u32 = 19;
}

const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const MODE_USER: u64 = 1;
const MODE_KERNEL: u64 = 2;
const KIND_NATIVE: u64 = 1;
const KIND_KERNEL: u64 = 2;

/// Writes packets; each name, frame and stack stands before the first packet that needs it.
#[derive(Debug, Default)]
pub struct Perfetto {
    names: HashMap<u32, u64>,
    files: HashMap<u32, u64>,
    frames: HashMap<(Option<u32>, u32), u32>,
    stacks: PrefixTree,
    told_stacks: HashSet<u32>,
    told_threads: HashSet<ThreadId>,
    mappings: Mappings,
    /// What is new since the last packet.
    new: Message,
    room: Message,
}

impl Perfetto {
    fn write(&mut self, make: impl FnOnce(&mut Message), out: &mut dyn Write) -> Result<()> {
        self.room.clear();
        self.room.message(1, make);
        out.write_all(self.room.bytes())?;
        Ok(())
    }

    fn mapping_tables(&mut self, source: &Source<'_>) {
        self.mappings = Mappings::of(source.profile);
        for (id, mapping) in (1u64..).zip(self.mappings.list()) {
            let module = source.profile.modules.get(mapping.module as usize);
            let build_id = module.and_then(|module| module.build_id.as_deref());
            let bytes = build_id.map(bytes_of).unwrap_or_default();
            let path = mapping.path.trim_start_matches('/');
            self.new.message(interned::BUILD_IDS, |entry| {
                entry.number(1, id).part(2, &bytes);
            });
            self.new.message(interned::MAPPING_PATHS, |entry| {
                entry.number(1, id).text(2, path);
            });
            let vaddr = module.map_or(mapping.offset, |module| module.vaddr(mapping.offset));
            self.new.message(interned::MAPPINGS, |entry| {
                entry
                    .number(1, id)
                    .number(2, id)
                    .number(8, mapping.offset)
                    .number(3, mapping.offset)
                    .number(4, mapping.start)
                    .number(5, mapping.start.saturating_add(mapping.size))
                    .number(6, vaddr.saturating_sub(mapping.offset))
                    .number(7, id);
            });
        }
    }

    fn name(&mut self, id: u32, field: u32, text: &str) -> u64 {
        let known = match field {
            interned::FUNCTION_NAMES => &mut self.names,
            _ => &mut self.files,
        };
        let next = known.len() as u64 + 1;
        let iid = *known.entry(id).or_insert(next);
        if iid == next {
            self.new.message(field, |entry| {
                entry.number(1, iid).text(2, text);
            });
        }
        iid
    }

    fn frame(&mut self, source: &Source<'_>, located: &Located) -> u32 {
        let key = (located.place, located.named);
        if let Some(&known) = self.frames.get(&key) {
            return known;
        }
        let id = u32::try_from(self.frames.len() + 1).unwrap_or(u32::MAX);
        self.frames.insert(key, id);
        let profile = source.profile;
        let frame = profile.frame(located.named);
        let name = self.name(
            frame.name.0,
            interned::FUNCTION_NAMES,
            profile.text(frame.name),
        );
        let file = frame.place.file.get();
        let file = file.map(|file| self.name(file.0, interned::SOURCE_PATHS, profile.text(file)));
        let place = located
            .place
            .and_then(|place| profile.places().get(place as usize));
        let mapped = place.and_then(|place| {
            let (mapping, _) = self.mappings.find(place)?;
            let module = profile.modules.get(place.module? as usize)?;
            Some((mapping, module.vaddr(place.offset)))
        });
        let kind = if frame.kernel {
            KIND_KERNEL
        } else {
            KIND_NATIVE
        };
        self.new.message(interned::FRAMES, |entry| {
            entry.number(1, id.into()).number(2, name);
            if let Some((mapping, pc)) = mapped {
                entry.number(3, mapping).always(4, pc);
            }
            entry
                .number(5, file.unwrap_or(0))
                .number(6, frame.place.line.into())
                .number(7, kind);
        });
        id
    }

    fn stack(&mut self, source: &Source<'_>, stack: &[Located]) -> u64 {
        let frames: Vec<u32> = stack
            .iter()
            .rev()
            .map(|located| self.frame(source, located))
            .collect();
        let Some(node) = self.stacks.add(frames.iter().copied()) else {
            return 0;
        };
        let iid = u64::from(node) + 1;
        if self.told_stacks.insert(node) {
            self.new.message(interned::CALLSTACKS, |entry| {
                entry.number(1, iid);
                for frame in frames {
                    entry.number(2, frame.into());
                }
            });
        }
        iid
    }

    /// The packet that names a thread, before its first sample.
    fn thread(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Some(facts) = source.thread(sample) else {
            return Ok(());
        };
        if !self.told_threads.insert(sample.thread) {
            return Ok(());
        }
        let time = sample.row.map_or(0, |row| row.time_ns);
        let make = |packet: &mut Message| {
            packet
                .number(packet::TIMESTAMP, time)
                .number(packet::SEQUENCE, SEQUENCE);
            packet.message(packet::PROCESS_TREE, |tree| {
                tree.message(1, |process| {
                    process
                        .number(1, facts.pid.into())
                        .text(3, &facts.process_comm)
                        .number(9, 1);
                });
                tree.message(2, |thread| {
                    thread
                        .number(1, facts.tid.into())
                        .text(2, &facts.comm)
                        .number(3, facts.pid.into());
                });
            });
        };
        self.write(make, out)
    }
}

/// Bytes of lower-case hexadecimal text.
fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .filter_map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

/// What a weight is of.
fn descriptor(message: &mut Message, name: &str, unit: &str) {
    let unit_number = match unit {
        "ns" => 1,
        "bytes" => 4,
        _ => 9,
    };
    message.text(2, name).number(3, unit_number);
}

impl Exporter for Perfetto {
    fn start(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        let [archive] = source.profile.archives.as_slice() else {
            return Err(Error::OneArchive);
        };
        let (start, (wall, _)) = (archive.start_ns(), source.times());
        let clocks = |packet: &mut Message| {
            packet.number(packet::SEQUENCE, SEQUENCE);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, time) in [(MONOTONIC, start), (REALTIME, wall)] {
                    snapshot.message(1, |entry| {
                        entry.number(1, clock).number(2, time);
                    });
                }
                snapshot.number(2, MONOTONIC);
            });
        };
        self.write(clocks, out)?;
        let event = source.profile.events.first();
        let (name, unit) = event.map_or(("samples", "samples"), |event| (&event.name, &event.unit));
        self.mapping_tables(source);
        let new = std::mem::take(&mut self.new);
        let head = |packet: &mut Message| {
            packet
                .number(packet::TIMESTAMP, start)
                .number(packet::SEQUENCE, SEQUENCE)
                .number(packet::FLAGS, STATE_CLEARED)
                .number(packet::FIRST, 1)
                .part(packet::INTERNED, new.bytes());
            packet.message(packet::DEFAULTS, |defaults| {
                defaults.number(58, MONOTONIC);
                defaults.message(100, |stack| {
                    stack.text(1, "rawstack");
                    stack.message(2, |counter| descriptor(counter, name, unit));
                });
            });
        };
        self.write(head, out)
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.thread(source, sample, out)?;
        let stack = self.stack(source, sample.stack);
        let row = sample.row.copied().unwrap_or_default();
        let leaf = sample
            .stack
            .first()
            .map(|leaf| source.profile.frame(leaf.named));
        let mode = match leaf {
            Some(leaf) if leaf.kernel => MODE_KERNEL,
            _ => MODE_USER,
        };
        let event = source.profile.events.get(sample.event as usize);
        let other = event.filter(|_| sample.event != 0);
        let new = std::mem::take(&mut self.new);
        let make = |packet: &mut Message| {
            packet
                .number(packet::TIMESTAMP, row.time_ns)
                .number(packet::SEQUENCE, SEQUENCE)
                .number(packet::FLAGS, NEEDS_STATE);
            if !new.bytes().is_empty() {
                packet.part(packet::INTERNED, new.bytes());
            }
            packet.message(packet::STACK_SAMPLE, |message| {
                message.message(1, |task| {
                    task.number(2, row.pid.into()).number(3, row.tid.into());
                });
                message.message(3, |execution| {
                    execution.always(2, row.cpu.into()).number(3, mode);
                });
                message.number(6, stack);
                if let Some(event) = other {
                    message.message(9, |counter| descriptor(counter, &event.name, &event.unit));
                }
                message.always(11, sample.weight);
            });
        };
        self.write(make, out)
    }
}
