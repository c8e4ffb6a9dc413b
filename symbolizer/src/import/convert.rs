//! Records of perf into rows of an archive.

use std::io::Write;
use std::result;

use foldhash::HashMap;
use linux_perf_event_reader::{
    CommOrExecRecord, EventRecord, ForkOrExitRecord, RawEventRecord, RecordType,
};
use rawstack_format::Writer;
use rawstack_format::id::{BuildId, FrameIndex};
use rawstack_format::record::{Drop, DropReason, Mapping, Mode, Module, ModuleKind, Recording};

use super::archive::ArchiveBuilder;
use super::attributes::Attribute;
use super::bytes::{Cursor, text};
use super::header::Facts;
use super::kernel::{Kallsyms, Kernel};
use super::notes::{self, KernelKnown, LeftOut};
use super::perf_data::PerfData;
use super::spaces::Spaces;
use super::{CodeFacts, CodeOf, Imported, Refusal};
use crate::error::{Error, Result};

/// Longest path and name, in bytes.
const MAX_TEXT: usize = 4096;
/// User halves that come later than their samples, from Linux 7.0 on.
const DEFERRED: RecordType = RecordType(22);
/// Why a record could not be taken.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is not what can be taken.
    Refused(Refusal),
    /// The archive could not be written.
    Writing(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Writing(error)
    }
}

/// Whether a record was taken.
pub(super) type Taken = result::Result<(), Failure>;

/// A name and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// Process; of a process its parent.
    pub(super) of: u32,
    pub(super) comm: String,
    pub(super) since: u64,
    pub(super) start: u64,
}

/// Takes records in the order of their times.
pub(super) struct Converter<'w, W> {
    builder: ArchiveBuilder<'w, W>,
    pub(super) code: &'w CodeOf<'w>,
    pub(super) facts: Facts,
    pub(super) attributes: Vec<Attribute>,
    /// For each attribute its event in the archive.
    pub(super) events: Vec<Option<u32>>,
    pub(super) kernel: Kernel,
    pub(super) spaces: Spaces,
    pub(super) modules: Modules,
    pub(super) mappings: Vec<(u32, Mapping)>,
    pub(super) processes: HashMap<u32, Named>,
    pub(super) threads: HashMap<u32, Named>,
    /// Frames of this epoch: space, or 0 for the kernel; leaf or not; address.
    pub(super) frames: HashMap<(u32, bool, u64), FrameIndex>,
    pub(super) next_ids: HashMap<u32, u64>,
    pub(super) time: u64,
    pub(super) last: u64,
    pub(super) left: LeftOut,
    pub(super) samples: u64,
    pub(super) lost: u64,
}

/// Modules by what makes them the same.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) rows: Vec<Module>,
    pub(super) index: HashMap<(ModuleKind, String, Option<BuildId>), u32>,
}

impl Modules {
    /// The number of `row`; of a file `code` is asked when it is new.
    pub(super) fn number(&mut self, row: &Module, code: &dyn Fn() -> Option<CodeFacts>) -> u32 {
        let key = (row.kind, row.path.clone(), row.build_id.clone());
        if let Some(&number) = self.index.get(&key) {
            return number;
        }
        let mut row = row.clone();
        if row.kind == ModuleKind::Elf
            && let Some(found) = code()
        {
            (row.class, row.machine, row.segments) = (found.class, found.machine, found.segments);
            row.build_id = row.build_id.or(found.build_id);
            row.content_hash = found.content_hash.filter(|_| row.build_id.is_none());
        }
        let number = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(row);
        self.index.insert(key, number);
        number
    }
}

impl<'w, W: Write> Converter<'w, W> {
    pub(super) fn new(
        data: &PerfData,
        kallsyms: Option<Kallsyms>,
        writer: &'w mut Writer<W>,
        code: &'w CodeOf<'w>,
    ) -> Self {
        let mut count = 0;
        let number = |attribute: &Attribute| {
            attribute.has_addresses().then(|| {
                count += 1;
                count - 1
            })
        };
        Self {
            builder: ArchiveBuilder::new(writer),
            code,
            facts: data.facts.clone(),
            events: data.attributes.iter().map(number).collect(),
            attributes: data.attributes.clone(),
            kernel: Kernel::new(kallsyms),
            spaces: Spaces::default(),
            modules: Modules::default(),
            mappings: Vec::new(),
            processes: HashMap::default(),
            threads: HashMap::default(),
            frames: HashMap::default(),
            next_ids: HashMap::default(),
            time: 0,
            last: 0,
            left: LeftOut::default(),
            samples: 0,
            lost: 0,
        }
    }

    /// The time of the record that comes next, 0 where it has none.
    pub(super) fn time(&mut self, time: u64) {
        self.time = time;
        self.last = self.last.max(time);
    }

    /// The archive, begun when there is something to write.
    pub(super) fn builder(&mut self) -> Result<&mut ArchiveBuilder<'w, W>> {
        if !self.builder.is_begun() {
            let preamble = self.kernel.records(self.facts.kernel_build_id());
            let recording = self.recording();
            self.builder.begin(recording, preamble)?;
        }
        Ok(&mut self.builder)
    }

    fn recording(&self) -> Recording {
        let facts = &self.facts;
        let wall = facts.clocks.map_or(0, |(wall, clock)| {
            wall.wrapping_add(self.time).wrapping_sub(clock)
        });
        let cpus = facts.cpus.map(|cpus| cpus.to_string());
        let build_id = facts.kernel_build_id().map(ToString::to_string);
        let host = [
            ("hostname", facts.hostname.clone()),
            ("kernel_release", facts.release.clone()),
            ("machine", facts.arch.clone()),
            ("cpus", cpus),
            ("kernel_build_id", build_id),
        ];
        let host = host
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), cut(&value?))));
        let version = facts
            .perf_version
            .as_deref()
            .unwrap_or("of unknown version");
        let attributes = self.attributes.iter().zip(&self.events);
        let events = attributes
            .filter(|(_, event)| event.is_some())
            .map(|(attribute, _)| attribute.event());
        Recording {
            mode: Mode::Immediate,
            mode_reason: "perf takes both halves at the tick".to_owned(),
            start_ns: self.time,
            start_wall_ns: wall,
            writer: format!(
                "rawstack import {} of perf {}",
                env!("CARGO_PKG_VERSION"),
                cut(version)
            ),
            events: events.collect(),
            host: host.collect(),
            ..Recording::default()
        }
    }

    /// Take a record of the event with number `event`.
    pub(super) fn take(&mut self, record: EventRecord<'_>, event: usize) -> Taken {
        match record {
            EventRecord::Sample(sample) => self.sample(&sample, event)?,
            EventRecord::Comm(comm) => self.comm(&comm),
            EventRecord::Fork(fork) => self.fork(&fork),
            EventRecord::Mmap(map) => self.map(&map)?,
            EventRecord::Mmap2(map) => self.map2(&map)?,
            EventRecord::Lost(lost) => self.lose(lost.count)?,
            EventRecord::Throttle(_) => self.left.throttled += 1,
            EventRecord::Raw(raw) => self.raw(&raw)?,
            _ => {}
        }
        Ok(())
    }

    fn comm(&mut self, comm: &CommOrExecRecord<'_>) {
        let (pid, tid) = (comm.pid.cast_unsigned(), comm.tid.cast_unsigned());
        let name = cut(&text(&comm.name.as_slice()));
        if comm.is_execve {
            self.spaces.exec(pid);
        }
        if pid == tid {
            let process = self.processes.entry(pid).or_default();
            (process.comm, process.since) = (name.clone(), self.time);
        }
        let thread = self.threads.entry(tid).or_default();
        (thread.of, thread.comm, thread.since) = (pid, name, self.time);
    }

    fn fork(&mut self, fork: &ForkOrExitRecord) {
        let [pid, parent, tid, parent_tid] =
            [fork.pid, fork.ppid, fork.tid, fork.ptid].map(i32::cast_unsigned);
        // perf tells of the threads that are there at its start as of forks, without a time.
        if pid != parent {
            if self.time > 0 {
                self.spaces.fork(parent, pid);
            }
            let comm = self.processes.get(&parent).map(|held| held.comm.clone());
            let process = self.processes.entry(pid).or_default();
            if self.time > 0 {
                process.comm = comm.unwrap_or_default();
                (process.since, process.start) = (self.time, self.time);
            }
            process.of = parent;
        }
        let comm = self.threads.get(&parent_tid).map(|held| held.comm.clone());
        self.threads.insert(
            tid,
            Named {
                of: pid,
                comm: comm.unwrap_or_default(),
                since: self.time,
                start: self.time,
            },
        );
    }

    fn raw(&mut self, raw: &RawEventRecord<'_>) -> Taken {
        let bytes = raw.data.as_slice();
        let mut cursor = Cursor::new(&bytes, raw.parse_info.endian);
        match raw.record_type {
            RecordType::KSYMBOL => {
                let parts = (cursor.u64(), cursor.u32(), cursor.u16(), cursor.u16());
                if let (Some(start), Some(length), Some(_), Some(flags)) = parts {
                    if flags & 1 == 0 {
                        let name = cut(&text(cursor.rest()));
                        self.kernel.add_program(start, length.into(), &name);
                    } else {
                        self.kernel.remove_program(start);
                    }
                    self.frames.retain(|(space, _, _), _| *space != 0);
                }
            }
            RecordType::LOST_SAMPLES => {
                // What was told when it happened counts once.
                let all = cursor.u64().unwrap_or(0);
                self.lose(all.saturating_sub(self.lost))?;
            }
            DEFERRED => self.left.deferred += 1,
            _ => {}
        }
        Ok(())
    }

    fn lose(&mut self, count: u64) -> Taken {
        if count == 0 {
            return Ok(());
        }
        self.lost = self.lost.saturating_add(count);
        let time = if self.time > 0 { self.time } else { self.last };
        let drop = Drop {
            reason: DropReason::BufferFull,
            cpu: u32::MAX,
            count,
            from_ns: time,
            to_ns: time,
        };
        Ok(self.builder()?.lose(drop)?)
    }

    /// Write what is left, and say what was imported.
    pub(super) fn finish(mut self, data: &PerfData) -> Result<Imported> {
        self.builder()?;
        let end = (!data.account.is_cut).then_some(self.last);
        self.builder.finish(end)?;
        let kernel = KernelKnown {
            start: self.kernel.has_start(),
            symbols: self.kernel.has_symbols(),
            build_id: self.facts.kernel_build_id().is_some(),
        };
        Ok(Imported {
            samples: self.samples,
            lost: self.lost,
            notes: notes::lines(&self.left, data.account, data.late(), kernel),
        })
    }
}

/// A text that is not too long.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
