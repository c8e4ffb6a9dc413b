//! All processes' code over time, out of the pieces that archives hold.

use std::collections::BTreeMap;

use foldhash::HashMap;
use rawstack_format::record::JitMap;

use super::code::{CodeMap, JitSymbolId};
use super::reading::{JitFile, Reading, Sink};
use super::store::Store;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(time_ns: u64, position: u64, text: &str) -> JitMap {
        JitMap {
            pid: 7,
            time_ns,
            position,
            bytes: text.into(),
            ..JitMap::default()
        }
    }

    fn name_at(table: &mut JitTable, address: u64, time_ns: u64) -> Option<String> {
        let symbol = match table.place(0, 7, address, time_ns) {
            Placed::In(symbol) => Some(symbol),
            Placed::Waits(space) => table.waited(space, address),
        };
        symbol.map(|symbol| String::from_utf8_lossy(table.name(symbol)).into_owned())
    }

    fn check(table: &mut JitTable, address: u64, time_ns: u64, name: &str) {
        let found = name_at(table, address, time_ns);
        assert_eq!(found.as_deref(), Some(name), "{address:#x} at {time_ns}");
    }

    /// Check that an address that is used again has the name of its time, and a new one has it from the beginning.
    #[test]
    fn grown() {
        let mut table = JitTable::default();
        table.take(0, &piece(100, 0, "1000 100 a\n"));
        table.take(0, &piece(200, 11, "1000 80 b\n2000 10 c\n"));
        check(&mut table, 0x1000, 50, "a");
        check(&mut table, 0x1000, 99, "a");
        check(&mut table, 0x1000, 150, "b");
        check(&mut table, 0x10f0, 150, "a");
        check(&mut table, 0x2000, 50, "c");
        assert_eq!(name_at(&mut table, 0x3000, 50), None);
    }

    /// Check that what no map names when it is asked for is named by the first that comes, and by no other process's.
    #[test]
    fn waits() {
        let mut table = JitTable::default();
        let Placed::Waits(space) = table.place(0, 7, 0x1000, 50) else {
            panic!("nothing is known")
        };
        assert!(!table.has_files(space));
        let other = JitMap {
            pid: 8,
            ..piece(90, 0, "1000 10 other\n")
        };
        table.take(0, &other);
        table.take(1, &piece(90, 0, "1000 10 elsewhere\n"));
        assert_eq!(table.waited(space, 0x1000), None);
        table.take(0, &piece(100, 0, "1000 10 a\n"));
        table.take(0, &piece(200, 10, "1000 10 b\n"));
        let symbol = table.waited(space, 0x1000).unwrap();
        assert_eq!(table.name(symbol), b"a");
        assert!(table.has_files(space));
    }

    /// Check that a map written anew replaces the old one, and what both say has been there all the time.
    #[test]
    fn written_anew() {
        let mut table = JitTable::default();
        table.take(0, &piece(100, 0, "1000 10 a\n2000 10 gone\n"));
        table.take(0, &piece(200, 0, "1000 10 a\n3000 10 new\n"));
        check(&mut table, 0x1000, 50, "a");
        check(&mut table, 0x1000, 250, "a");
        check(&mut table, 0x2000, 150, "gone");
        assert_eq!(name_at(&mut table, 0x2000, 250), None);
        check(&mut table, 0x3000, 150, "new");
    }

    /// Check that nothing of a process that has ended is said of the next one with its number.
    #[test]
    fn number_used_again() {
        let mut table = JitTable::default();
        table.take(0, &piece(100, 0, "1000 10 first\n"));
        table.take(0, &piece(150, 0, ""));
        check(&mut table, 0x1000, 120, "first");
        assert_eq!(name_at(&mut table, 0x1000, 160), None);
        table.take(0, &piece(200, 0, "1000 10 second\n"));
        check(&mut table, 0x1000, 120, "first");
        check(&mut table, 0x1000, 160, "second");
    }

    /// Check that a lost piece costs its lines and the one it ends in.
    #[test]
    fn lost_piece() {
        let mut table = JitTable::default();
        table.take(0, &piece(100, 0, "1000 10 a\n"));
        table.take(0, &piece(200, 30, "0 10 half\n2000 10 b\n"));
        check(&mut table, 0x1000, 50, "a");
        check(&mut table, 0x2000, 250, "b");
        assert_eq!(name_at(&mut table, 0, 250), None);
        assert!(table.files()[0].damaged);
    }

    /// Check that a version stands for the answers behind the last change only.
    #[test]
    fn versions() {
        let mut table = JitTable::default();
        assert_eq!(table.version(0, 7, 50), Some(0));
        table.take(0, &piece(100, 0, "1000 10 a\n"));
        assert_eq!(table.version(0, 7, 100), None);
        assert!(table.version(0, 7, 101).is_some());
    }
}
