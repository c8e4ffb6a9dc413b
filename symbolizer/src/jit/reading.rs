//! One file of one process, read piece by piece: where its functions go.

use std::collections::BTreeMap;

use rawstack_format::record::JitMap;

use super::Entry;
use super::code::{Code, CodeMap, JitSymbolId};
use super::dump::DumpReader;
use super::perf_map::MapReader;
use super::store::{Store, Symbol, Told};

/// A jitdump's times and a sample's may differ by so much: what runs at once is not written at once.
const SLACK_NS: u64 = 1_000_000;

/// Lines that wait for their function at most.
const MAX_WAITING: usize = 1 << 16;

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
pub(super) struct Reading {
    pub(super) map: MapReader,
    pub(super) dump: DumpReader,
    /// Position behind the last piece.
    pub(super) position: u64,
    /// When the last piece was read.
    pub(super) last_ns: u64,
    /// Number of this reading from the file's beginning on, among all of the process.
    pub(super) number: u32,
    pub(super) file: JitFile,
    pub(super) is_begun: bool,
    /// Lines whose function is still to come.
    pub(super) lines: Vec<Told>,
}

impl Reading {
    /// From the file's beginning on.
    pub(super) fn begin(&mut self, number: u32) {
        (self.map, self.dump) = (MapReader::default(), DumpReader::default());
        (self.position, self.number, self.is_begun) = (0, number, true);
        self.lines.clear();
    }

    /// Pieces are missing. A perf map goes on at its next line.
    pub(super) fn jump(&mut self, number: u32) {
        (self.map, self.dump) = (MapReader::behind_gap(), DumpReader::behind_gap());
        (self.number, self.is_begun, self.file.damaged) = (number, true, true);
        self.lines.clear();
    }

    pub(super) fn take(&mut self, piece: &JitMap, sink: &mut Sink<'_>) {
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
pub(super) struct Sink<'t> {
    pub(super) code: &'t mut CodeMap,
    pub(super) waiting: &'t mut BTreeMap<u64, Option<JitSymbolId>>,
    pub(super) store: &'t mut Store,
    pub(super) process: u32,
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
                if lines.len() < MAX_WAITING {
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
