//! Jitdumps: records of code as it was made, with times and lines. Machine code in them is passed over.
//!
//! The layout is that of perf's `jitdump-specification.txt`. A header of 40 bytes (magic, version, own size, machine, pad,
//! process, time, flags), then records: type, size, time; behind that what the type says. Lines come ahead of the
//! function that they belong to. Only little-endian dumps are read: others cannot come from the machines that are recorded.

use rawstack_format::id::Addr;

use super::Entry;

/// `JiTD` as a little-endian number.
const MAGIC: u32 = 0x4a69_5444;
/// Flag of a header: times are of the processor's own counter.
const FLAG_ARCH_TIME: u64 = 1;
/// Bytes of a record before what its type says.
const RECORD: usize = 16;
/// Bytes of a load record before the name.
const LOAD: usize = 56;
/// Bytes of a move record.
const MOVE: usize = 64;
/// Bytes of a line before its file.
const LINE: usize = 16;
/// Longest part of a load record that is kept: fields and name.
const MAX_LOAD: usize = LOAD + (1 << 16);
/// Longest record of lines that is read.
const MAX_LINES: usize = 1 << 20;

/// Reads a jitdump piece by piece.
#[derive(Debug, Default)]
pub struct DumpReader {
    /// Beginning of a record, as far as it has come.
    held: Vec<u8>,
    /// Bytes to pass over.
    skip: u64,
    header: Option<Header>,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    has_times: bool,
}

/// Bytes from a place on; 0 where there are none.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

impl DumpReader {
    /// A reader for what follows a gap: where a record begins there cannot be known.
    pub fn behind_gap() -> Self {
        Self {
            is_broken: true,
            ..Self::default()
        }
    }

    /// Whether what came is no jitdump, or cannot be followed.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Read the next piece.
    pub fn read(&mut self, mut bytes: &[u8], each: &mut dyn FnMut(Entry<'_>)) {
        while !bytes.is_empty() && !self.is_broken {
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.skip -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let missing = self
                .wanted()
                .saturating_sub(self.held.len())
                .clamp(1, bytes.len());
            let (more, rest) = bytes.split_at(missing);
            self.held.extend_from_slice(more);
            bytes = rest;
            if self.held.len() >= self.wanted() {
                self.take(each);
            }
        }
    }

    /// Bytes that must be held before anything can be done with them.
    fn wanted(&self) -> usize {
        if self.header.is_none() {
            return if self.held.len() < 12 {
                12
            } else {
                self.header_size().max(40)
            };
        }
        if self.held.len() < RECORD {
            return RECORD;
        }
        let size = u32_at(&self.held, 4) as usize;
        match u32_at(&self.held, 0) {
            0 => size.min(MAX_LOAD),
            1 => size.min(MOVE),
            2 if size <= MAX_LINES => size,
            _ => RECORD,
        }
        .max(RECORD)
    }

    fn header_size(&self) -> usize {
        (u32_at(&self.held, 8) as usize).min(MAX_LOAD)
    }

    fn take(&mut self, each: &mut dyn FnMut(Entry<'_>)) {
        let Some(header) = self.header else {
            let flags = u64_at(&self.held, 32);
            self.is_broken = u32_at(&self.held, 0) != MAGIC || self.header_size() < 40;
            self.header = Some(Header {
                has_times: flags & FLAG_ARCH_TIME == 0,
            });
            self.held.clear();
            return;
        };
        let size = u64::from(u32_at(&self.held, 4));
        if size < RECORD as u64 {
            self.is_broken = true;
            return;
        }
        let time_ns = header.has_times.then(|| u64_at(&self.held, 8));
        match u32_at(&self.held, 0) {
            0 => load(&self.held, time_ns, each),
            1 => moved(&self.held, time_ns, each),
            2 => lines(&self.held, each),
            _ => {}
        }
        self.skip = size.saturating_sub(self.held.len() as u64);
        self.held.clear();
    }
}

fn load(record: &[u8], time_ns: Option<u64>, each: &mut dyn FnMut(Entry<'_>)) {
    let Some(rest) = record.get(LOAD..) else {
        return;
    };
    let Some(name) = rest.split(|&byte| byte == 0).next() else {
        return;
    };
    let (start, size) = (u64_at(record, 32), u64_at(record, 40));
    if size > 0 && start.checked_add(size).is_some() && !name.is_empty() {
        each(Entry::Function {
            start: Addr(start),
            size,
            name,
            time_ns,
        });
    }
}

fn moved(record: &[u8], time_ns: Option<u64>, each: &mut dyn FnMut(Entry<'_>)) {
    if record.len() >= MOVE {
        let (from, to) = (Addr(u64_at(record, 32)), Addr(u64_at(record, 40)));
        each(Entry::Moved { from, to, time_ns });
    }
}

/// Folklore: Node 20 writes names of files that it has freed already, so that each entry may be of any length and all
/// behind it out of step. A record that is not text and entries to its very end says nothing.
fn lines(record: &[u8], each: &mut dyn FnMut(Entry<'_>)) {
    let count = usize::try_from(u64_at(record, 24)).unwrap_or(usize::MAX);
    let mut rest = record.get(32..).unwrap_or_default();
    let mut found = Vec::new();
    let mut file: &[u8] = &[];
    while found.len() < count {
        let Some(text) = rest.get(LINE..) else { return };
        let Some(end) = text.iter().position(|&byte| byte == 0) else {
            return;
        };
        let (name, behind) = text.split_at(end);
        // A name of the one byte 0xff is that of the line before.
        if name != [0xff] {
            file = name;
        }
        if !is_text(file) {
            return;
        }
        found.push(Entry::Line {
            address: Addr(u64_at(rest, 0)),
            file,
            line: u32_at(rest, 8),
        });
        rest = behind.get(1..).unwrap_or_default();
    }
    // Some fill records up to a multiple of eight bytes.
    if rest.len() < 8 {
        found.into_iter().for_each(each);
    }
}

fn is_text(name: &[u8]) -> bool {
    let text = std::str::from_utf8(name);
    text.is_ok_and(|text| !text.is_empty() && !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(RECORD + body.len()).unwrap();
        [
            &kind.to_le_bytes()[..],
            &size.to_le_bytes(),
            &7u64.to_le_bytes(),
            body,
        ]
        .concat()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn load(start: u64, name: &[u8], code: &[u8]) -> Vec<u8> {
        let fields = words(&[0, start, start, code.len() as u64, 0]);
        record(0, &[&fields, name, b"\0", code].concat())
    }

    fn line(address: u64, line: u64, file: &[u8]) -> Vec<u8> {
        [&words(&[address, line]), file, b"\0"].concat()
    }

    fn dump(flags: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let magic = u64::from(MAGIC) | 1 << 32;
        let header = words(&[magic, 40, 0, 0, flags]);
        [header, records.concat()].concat()
    }

    fn read(bytes: &[u8], step: usize) -> Vec<String> {
        let (mut reader, mut found) = (DumpReader::default(), Vec::new());
        for piece in bytes.chunks(step) {
            reader.read(piece, &mut |entry| found.push(format!("{entry:?}")));
        }
        found
    }

    /// Check that functions, moves and lines come out in their order, wherever the pieces are cut.
    #[test]
    fn records() {
        let lines = [line(0x1000, 3, b"/a.js"), line(0x1004, 4, b"\xff")].concat();
        let records = [
            record(2, &[words(&[0x1000, 2]), lines].concat()),
            load(0x1000, b"f x", b"CODECODE"),
            record(9, b"unknown"),
            record(1, &words(&[0, 0, 0x1000, 0x2000, 8, 0])),
            record(3, b""),
        ];
        let bytes = dump(0, &records);
        let whole = read(&bytes, bytes.len());
        assert_eq!(whole.len(), 4, "{whole:?}");
        assert!(whole[1].contains("line: 4") && whole[1].contains(&format!("{:?}", b"/a.js")));
        assert!(whole[2].contains("size: 8") && whole[2].contains("time_ns: Some(7)"));
        assert!(whole[3].contains("Moved"));
        for step in 1..bytes.len() {
            assert_eq!(read(&bytes, step), whole, "in pieces of {step}");
        }
    }

    /// Check that times of a processor's own counter are none.
    #[test]
    fn other_clock() {
        let found = read(&dump(FLAG_ARCH_TIME, &[load(1, b"f", b"CODE")]), 100);
        assert!(found[0].contains("time_ns: None"), "{found:?}");
    }

    /// Check that lines whose file is no text, or that do not fill their record, are all left out.
    #[test]
    fn lines_out_of_step() {
        for file in [&b"\x81\x92\x01\0\0\0\0"[..], b"", b"/a\x01"] {
            let lines = [line(0x1000, 3, b"/a.js"), line(0x1001, 3, file)].concat();
            let record = record(2, &[words(&[0x1000, 2]), lines].concat());
            assert_eq!(read(&dump(0, &[record]), 1000), Vec::<String>::new());
        }
    }

    /// Check that any bytes and sizes are gone through to the end.
    #[test]
    fn hostile() {
        assert!(read(b"no jitdump at all, as one sees", 5).is_empty());
        for size in [0, 1, 15, 16, 17, 31, 32, 55, 56, 57, 1 << 20, u32::MAX] {
            for kind in 0..5u32 {
                let mut odd = load(0x1000, b"f", b"CODE");
                odd[..4].copy_from_slice(&kind.to_le_bytes());
                odd[4..8].copy_from_slice(&size.to_le_bytes());
                let bytes = dump(0, &[odd.clone(), odd]);
                read(&bytes, 13);
            }
        }
    }
}
