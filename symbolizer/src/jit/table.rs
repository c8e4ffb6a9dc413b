//! All processes' code over time, out of the pieces that archives hold.

use std::collections::BTreeMap;
use std::ops::Range;

use foldhash::HashMap;
use rawstack_format::record::JitMap;

use super::Entry;
use super::code::{Code, CodeMap, JitSymbolId};
use super::dump::DumpReader;
use super::perf_map::MapReader;
use crate::text::{ByteTable, StringId};

/// Functions that are kept in all: more are passed over, and told.
const MAX_SYMBOLS: usize = 4 << 20;
/// Bytes of their names, each once.
const MAX_NAMES: usize = 256 << 20;
/// Lines that are kept in all.
const MAX_LINES: usize = 8 << 20;
/// A jitdump's times and a sample's may differ by so much: what runs at once is not written at once.
const SLACK_NS: u64 = 1_000_000;

/// An address space: a program in a process of one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// What is known of an address at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placed {
    /// It lies in this function.
    In(JitSymbolId),
    /// No map names it yet; [`JitTable::waited`] knows it at the end.
    Waits(SpaceId),
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) name: StringId,
    pub(super) start: u64,
    pub(super) process: u32,
    /// Its lines: from and up to where among all.
    pub(super) lines: (u32, u32),
}

/// A line of a function.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Distance from the function's start.
    offset: u64,
    file: StringId,
    line: u32,
}

/// What there is of one file of one process.
#[derive(Clone, Debug, Default)]
pub struct JitFile {
    /// Number of the archive.
    pub archive: u32,
    /// Process.
    pub pid: u32,
    /// 0: perf map; 1: jitdump.
    pub kind: u8,
    /// Bytes read.
    pub bytes: u64,
    /// Functions found.
    pub functions: u64,
    /// Whether lines were found.
    pub has_lines: bool,
    /// Parts are missing, or could not be followed.
    pub damaged: bool,
}

impl JitFile {
    /// Name of the kind.
    pub fn name(&self) -> &'static str {
        if self.kind == 0 {
            "perf map"
        } else {
            "jitdump"
        }
    }
}

/// A file that is being read.
#[derive(Debug, Default)]
struct Reading {
    map: MapReader,
    dump: DumpReader,
    /// Position behind the last piece.
    position: u64,
    /// When the last piece was read.
    last_ns: u64,
    /// Number of this reading from the file's beginning on, among all of the process.
    number: u32,
    file: JitFile,
    is_begun: bool,
    /// Lines whose function is still to come.
    lines: Vec<Told>,
}

/// Address, file and line.
type Told = (u64, StringId, u32);

#[derive(Debug)]
struct Process {
    number: u32,
    space: SpaceId,
    code: CodeMap,
    readings: [Reading; 2],
    /// Until when what a reading said holds.
    until_ns: Vec<u64>,
    /// Time of the last change: answers for later times stay the same until the next.
    changed_ns: u64,
    version: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub struct JitTable {
    processes: HashMap<(u32, u32), Process>,
    /// Archive and process of each process's number.
    owners: Vec<(u32, u32)>,
    /// Process of each space, by number.
    spaces: Vec<u32>,
    waiting: HashMap<SpaceId, BTreeMap<u64, Option<JitSymbolId>>>,
    store: Store,
}

/// Functions, names and lines.
#[derive(Debug, Default)]
struct Store {
    symbols: Vec<Symbol>,
    names: ByteTable,
    name_bytes: usize,
    lines: Vec<Line>,
    is_full: bool,
}

impl Store {
    fn name(&mut self, name: &[u8]) -> StringId {
        if self.name_bytes >= MAX_NAMES {
            self.is_full = true;
            return StringId::NONE;
        }
        let before = self.names.len();
        let id = self.names.intern(name);
        if self.names.len() > before {
            self.name_bytes += name.len();
        }
        id
    }

    fn symbol(&mut self, symbol: Symbol) -> Option<JitSymbolId> {
        if self.symbols.len() >= MAX_SYMBOLS {
            self.is_full = true;
            return None;
        }
        self.symbols.push(symbol);
        u32::try_from(self.symbols.len() - 1).ok().map(JitSymbolId)
    }

    /// Keep the lines of a function, in the order of their addresses.
    fn add_lines(&mut self, place: &Range<u64>, lines: &mut Vec<Told>) -> (u32, u32) {
        let count = |store: &Self| u32::try_from(store.lines.len()).unwrap_or(u32::MAX);
        let first = count(self);
        lines.retain(|(address, _, _)| place.contains(address));
        lines.sort_by_key(|&(address, _, _)| address);
        for (address, file, line) in lines.drain(..) {
            let offset = address - place.start;
            if self.lines.len() >= MAX_LINES {
                self.is_full = true;
                break;
            }
            self.lines.push(Line { offset, file, line });
        }
        (first, count(self))
    }
}

impl JitTable {
    /// Take the next piece of an archive.
    pub fn take(&mut self, archive: u32, piece: &JitMap) {
        self.process(archive, piece.pid);
        let Some(process) = self.processes.get_mut(&(archive, piece.pid)) else {
            return;
        };
        let Some(reading) = process.readings.get_mut(usize::from(piece.kind)) else {
            return;
        };
        process.version = process.version.wrapping_add(1);
        process.changed_ns = process.changed_ns.max(piece.time_ns);
        let is_end = piece.position == 0 && piece.bytes.is_empty();
        if piece.position == 0 && reading.is_begun {
            if let Some(until) = process.until_ns.get_mut(reading.number as usize) {
                *until = piece.time_ns;
            }
            if is_end {
                process.space = next_space(&mut self.spaces, process.number);
            }
        }
        if piece.position == 0 {
            reading.begin(u32::try_from(process.until_ns.len()).unwrap_or(u32::MAX));
            process.until_ns.push(u64::MAX);
            if is_end {
                reading.is_begun = false;
            }
        } else if reading.position != piece.position || !reading.is_begun {
            reading.jump(u32::try_from(process.until_ns.len()).unwrap_or(u32::MAX));
            process.until_ns.push(u64::MAX);
        }
        let mut sink = Sink {
            code: &mut process.code,
            waiting: self.waiting.entry(process.space).or_default(),
            store: &mut self.store,
            process: process.number,
        };
        reading.take(piece, &mut sink);
    }

    fn process(&mut self, archive: u32, pid: u32) -> &mut Process {
        let (owners, spaces) = (&mut self.owners, &mut self.spaces);
        self.processes.entry((archive, pid)).or_insert_with(|| {
            let number = u32::try_from(owners.len()).unwrap_or(u32::MAX);
            owners.push((archive, pid));
            let file = |kind| JitFile {
                archive,
                pid,
                kind,
                ..JitFile::default()
            };
            let reading = |kind| Reading {
                file: file(kind),
                ..Reading::default()
            };
            Process {
                number,
                space: next_space(spaces, number),
                code: CodeMap::default(),
                readings: [reading(0), reading(1)],
                until_ns: Vec::new(),
                changed_ns: 0,
                version: 0,
            }
        })
    }

    /// What is known of an address of process `pid` at `time_ns`.
    pub fn place(&mut self, archive: u32, pid: u32, address: u64, time_ns: u64) -> Placed {
        let process = self.process(archive, pid);
        let until = |reading: u32| {
            process
                .until_ns
                .get(reading as usize)
                .copied()
                .unwrap_or(u64::MAX)
        };
        if let Some(symbol) = process.code.at(address, time_ns, until) {
            return Placed::In(symbol);
        }
        let space = process.space;
        self.waiting
            .entry(space)
            .or_default()
            .entry(address)
            .or_insert(None);
        Placed::Waits(space)
    }

    /// A number that stands for all answers about `pid` at `time_ns`; `None` where they may depend on the time.
    pub fn version(&self, archive: u32, pid: u32, time_ns: u64) -> Option<u32> {
        match self.processes.get(&(archive, pid)) {
            None => Some(0),
            Some(process) => (time_ns > process.changed_ns).then_some(process.version),
        }
    }

    /// The function at an address that no map named when it was asked for.
    pub fn waited(&self, space: SpaceId, address: u64) -> Option<JitSymbolId> {
        self.waiting.get(&space)?.get(&address).copied().flatten()
    }

    /// Whether any file of the space's process is known.
    pub fn has_files(&self, space: SpaceId) -> bool {
        let owner = self.spaces.get(space.0 as usize);
        let owner = owner.and_then(|&process| self.owners.get(process as usize));
        let process = owner.and_then(|owner| self.processes.get(owner));
        process.is_some_and(|process| {
            process
                .readings
                .iter()
                .any(|reading| reading.file.bytes > 0)
        })
    }

    /// Name of a function, as its map has it.
    pub fn name(&self, symbol: JitSymbolId) -> &[u8] {
        let symbol = self.store.symbols.get(symbol.0 as usize);
        symbol.map_or(&[], |symbol| self.store.names.get(symbol.name))
    }

    /// Archive and process that a function belongs to.
    pub fn owner(&self, symbol: JitSymbolId) -> Option<(u32, u32)> {
        let symbol = self.store.symbols.get(symbol.0 as usize)?;
        self.owners.get(symbol.process as usize).copied()
    }

    /// File and line of an address in a function, where its map tells them.
    pub fn line(&self, symbol: JitSymbolId, address: u64) -> Option<(&[u8], u32)> {
        let symbol = self.store.symbols.get(symbol.0 as usize)?;
        let (first, end) = symbol.lines;
        let lines = self.store.lines.get(first as usize..end as usize)?;
        let offset = address.checked_sub(symbol.start)?;
        let behind = lines.partition_point(|line| line.offset <= offset);
        let line = lines.get(behind.checked_sub(1)?)?;
        Some((self.store.names.get(line.file), line.line))
    }

    /// All files, by archive, process and kind.
    pub fn files(&self) -> Vec<JitFile> {
        let readings = self
            .processes
            .values()
            .flat_map(|process| &process.readings);
        let mut files: Vec<JitFile> = readings
            .filter(|reading| reading.file.bytes > 0)
            .map(|reading| JitFile {
                damaged: reading.file.damaged || self.store.is_full || reading.dump.is_broken(),
                ..reading.file.clone()
            })
            .collect();
        files.sort_by_key(|file| (file.archive, file.pid, file.kind));
        files
    }
}

fn next_space(spaces: &mut Vec<u32>, process: u32) -> SpaceId {
    let space = SpaceId(u32::try_from(spaces.len()).unwrap_or(u32::MAX));
    spaces.push(process);
    space
}

impl Reading {
    /// From the file's beginning on.
    fn begin(&mut self, number: u32) {
        (self.map, self.dump) = (MapReader::default(), DumpReader::default());
        (self.position, self.number, self.is_begun) = (0, number, true);
        self.lines.clear();
    }

    /// Pieces are missing. A perf map goes on at its next line.
    fn jump(&mut self, number: u32) {
        (self.map, self.dump) = (MapReader::behind_gap(), DumpReader::behind_gap());
        (self.number, self.is_begun, self.file.damaged) = (number, true, true);
        self.lines.clear();
    }

    fn take(&mut self, piece: &JitMap, sink: &mut Sink<'_>) {
        let Self {
            map,
            dump,
            last_ns,
            number,
            file,
            lines,
            ..
        } = self;
        // What has no time of its own was written behind the last reading.
        let (from, to) = (*last_ns, piece.time_ns);
        let mut each = |entry: Entry<'_>| sink.take(entry, (from, to), *number, file, lines);
        if piece.kind == 0 {
            map.read(&piece.bytes, &mut each);
        } else {
            dump.read(&piece.bytes, &mut each);
        }
        self.file.bytes = self.file.bytes.saturating_add(piece.bytes.len() as u64);
        self.position = piece.position.saturating_add(piece.bytes.len() as u64);
        self.last_ns = piece.time_ns;
    }
}

/// Where entries of a file go.
struct Sink<'t> {
    code: &'t mut CodeMap,
    waiting: &'t mut BTreeMap<u64, Option<JitSymbolId>>,
    store: &'t mut Store,
    process: u32,
}

impl Sink<'_> {
    fn take(
        &mut self,
        entry: Entry<'_>,
        (from_ns, to_ns): (u64, u64),
        reading: u32,
        file: &mut JitFile,
        lines: &mut Vec<Told>,
    ) {
        // A time behind the reading is no time of this clock.
        let since = |time: Option<u64>| {
            let own = time.filter(|&time| time <= to_ns);
            own.map_or(from_ns, |time| time.saturating_sub(SLACK_NS))
        };
        match entry {
            Entry::Line {
                address,
                file: name,
                line,
            } => {
                let name = self.store.name(name);
                if lines.len() < MAX_LINES {
                    lines.push((address.0, name, line));
                }
            }
            Entry::Function {
                start,
                size,
                name,
                time_ns,
            } => {
                file.functions += 1;
                file.has_lines |= !lines.is_empty();
                let name = self.store.name(name);
                let end = start.0 + size;
                // Said again, as by a map that is written anew: it has been there all the time.
                let symbols = &self.store.symbols;
                let same = self.code.same_place(start.0, end).filter(|code| {
                    let symbol = symbols.get(code.symbol.0 as usize);
                    time_ns.is_none() && symbol.is_some_and(|symbol| symbol.name == name)
                });
                if let Some(code) = same {
                    code.reading = reading;
                    return;
                }
                let symbol = Symbol {
                    name,
                    start: start.0,
                    process: self.process,
                    lines: self.store.add_lines(&(start.0..end), lines),
                };
                self.insert(symbol, (start.0, end), since(time_ns), reading);
            }
            Entry::Moved { from, to, time_ns } => {
                let Some(&code) = self.code.starting(from.0) else {
                    return;
                };
                let Some(&old) = self.store.symbols.get(code.symbol.0 as usize) else {
                    return;
                };
                let Some(end) = to.0.checked_add(code.end - code.start) else {
                    return;
                };
                let symbol = Symbol { start: to.0, ..old };
                self.insert(symbol, (to.0, end), since(time_ns), reading);
            }
        }
    }

    fn insert(&mut self, symbol: Symbol, (start, end): (u64, u64), since_ns: u64, reading: u32) {
        let Some(symbol) = self.store.symbol(symbol) else {
            return;
        };
        self.code.insert(Code {
            start,
            end,
            since_ns,
            symbol,
            reading,
        });
        for (_, waits) in self.waiting.range_mut(start..end) {
            waits.get_or_insert(symbol);
        }
    }
}
