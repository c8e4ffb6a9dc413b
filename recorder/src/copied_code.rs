//! Code that a program copied to memory of its own, to have it on huge pages, and then mapped over the file's.
//!
//! The kernel shows such memory without a name. It is the file's all the same where the file's other parts stand around it
//! and one of its code segments lies there. What lies in a gap between segments is not.

use std::io;

use rawstack_format::record::Segment;

use crate::elf::ElfFacts;
use crate::helper::FileRequest;
use crate::mapped_file;
use crate::proc_fs::{self, Maps, MapsLine};

/// Places of one process that are looked at: each may cost opening a file.
const MAX_PLACES: usize = 16;
/// A bit of `PROT_*` and the segment flag of the same meaning.
const PROTECTIONS: [(u32, u32); 3] = [(1, 4), (2, 2), (4, 1)];

/// The executable mappings of a process, with copied code as its file's.
pub(crate) fn maps(pid: u32) -> io::Result<Maps> {
    let mut places = Places::default();
    let mut maps = proc_fs::read_maps(pid, |raw, line| places.see(raw, line))?;
    for place in places.found {
        if let Some(line) = maps.lines.get_mut(place.index) {
            place.name(pid, maps.read_ns, line);
        }
    }
    Ok(maps)
}

/// Executable memory without a name, between two parts of one file.
#[derive(Debug)]
struct Place {
    /// Position among the executable mappings.
    index: usize,
    /// The file's mapping in front, as a line.
    before: Vec<u8>,
    is_between: bool,
}

/// Places found so far.
#[derive(Debug, Default)]
struct Places {
    executable: usize,
    /// The last line with a file.
    before: Vec<u8>,
    found: Vec<Place>,
}

impl Places {
    /// The next line: as it is, and taken apart if it is executable.
    fn see(&mut self, raw: &[u8], line: Option<&MapsLine>) {
        if file_of(raw).is_some() {
            self.found.retain_mut(|place| {
                place.is_between |= file_of(&place.before) == file_of(raw);
                place.is_between
            });
            self.before.clear();
            self.before.extend_from_slice(raw);
        }
        let Some(line) = line else { return };
        let is_bare = line.inode == 0 && (line.path.is_empty() || line.path.starts_with(b"[anon"));
        if is_bare && !self.before.is_empty() && self.found.len() < MAX_PLACES {
            self.found.push(Place {
                index: self.executable,
                before: self.before.clone(),
                is_between: false,
            });
        }
        self.executable += 1;
    }
}

/// Device, inode and path of a line with a file.
fn file_of(raw: &[u8]) -> Option<&[u8]> {
    let behind_offset = raw.splitn(4, |&byte| byte == b' ').nth(3);
    behind_offset.filter(|rest| rest.contains(&b'/'))
}

impl Place {
    /// Make `line` the file's, if one of its code segments lies there.
    fn name(&self, pid: u32, read_ns: u64, line: &mut MapsLine) {
        let before = self
            .is_between
            .then(|| MapsLine::parse_any(&self.before))
            .flatten();
        let Some(before) = before else { return };
        let request = FileRequest {
            pid,
            addresses: before.addresses.clone(),
            path: before.path.clone(),
            file: (before.device.0, before.device.1, before.inode),
            build_id: None,
            seen_ns: read_ns,
        };
        let facts = mapped_file::open(&request).and_then(|file| ElfFacts::read(&file));
        let Some(offset) = facts.and_then(|facts| offset_in(&facts, &before, line)) else {
            return;
        };
        *line = MapsLine {
            addresses: line.addresses.clone(),
            protection: line.protection,
            offset,
            ..before
        };
    }
}

/// The file offset of what was copied to `place`, given that `part` of the same file is mapped as it is.
fn offset_in(facts: &ElfFacts, part: &MapsLine, place: &MapsLine) -> Option<u64> {
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let down = |address: u64| address & !(page - 1);
    let segments = || facts.segments.iter().chain(&facts.data);
    let holds = |segment: &&Segment| {
        let start = down(segment.offset.0);
        let end = segment.offset.0.checked_add(segment.file_size);
        start <= part.offset && end.is_some_and(|end| part.offset < end)
    };
    // One page of the file may be in two segments.
    let of_part = segments()
        .find(|segment| holds(segment) && protection(segment.flags) == part.protection)
        .or_else(|| segments().find(holds))?;
    let vaddr = part
        .offset
        .wrapping_sub(of_part.offset.0)
        .wrapping_add(of_part.vaddr);
    let moved = part.addresses.start.wrapping_sub(vaddr);
    let start = place.addresses.start.wrapping_sub(moved);
    let end = place.addresses.end.wrapping_sub(moved);
    let code = facts.segments.iter().find(|segment| {
        let code_end = segment.vaddr.checked_add(segment.file_size);
        segment.vaddr < end && code_end.is_some_and(|code_end| start < code_end)
    })?;
    code.offset
        .0
        .checked_add(start)
        .and_then(|sum| sum.checked_sub(code.vaddr))
}

/// The `PROT_*` bits of a segment's flags.
fn protection(flags: u32) -> u32 {
    PROTECTIONS
        .iter()
        .filter(|(_, flag)| flags & flag != 0)
        .map(|(bit, _)| bit)
        .sum()
}

#[cfg(test)]
mod tests {
    use rawstack_format::id::FileOffset;

    use super::*;

    fn segment(offset: u64, vaddr: u64, file_size: u64, flags: u32) -> Segment {
        Segment {
            offset: FileOffset(offset),
            vaddr,
            file_size,
            flags,
        }
    }

    /// A file as lld lays it out, its addresses further and further ahead of its offsets.
    fn facts() -> ElfFacts {
        ElfFacts {
            segments: vec![segment(0x1800, 0x3800, 0x2000, 5)],
            data: vec![segment(0, 0, 0x1800, 4), segment(0x3800, 0x7800, 0x100, 6)],
            ..ElfFacts::default()
        }
    }

    fn line(text: &str) -> MapsLine {
        MapsLine::parse_any(text.as_bytes()).unwrap()
    }

    /// Check the offset of copied code by each of the parts around it, of a whole segment and of a piece, and that a gap
    /// between segments is not the file's.
    #[test]
    fn offsets() {
        let parts = [
            "10000-12000 r--p 00000000 fd:01 7 /p",
            "17000-18000 rw-p 00003000 fd:01 7 /p",
        ];
        for part in parts.map(line) {
            let of = |place: &str| offset_in(&facts(), &part, &line(place));
            assert_eq!(of("13000-16000 r-xp 00000000 00:00 0"), Some(0x1000));
            assert_eq!(of("14000-15000 r-xp 00000000 00:00 0"), Some(0x2000));
            assert_eq!(of("16000-17000 r-xp 00000000 00:00 0"), None);
        }
    }

    /// Check that only memory without a name between two parts of one file is looked at.
    #[test]
    fn places() {
        let text = "1000-2000 r--p 00000000 fd:01 7 /p\n2000-3000 r-xp 00000000 00:00 0\n\
            3000-4000 rw-p 00003000 fd:01 7 /p\n5000-6000 r-xp 00000000 00:00 0\n\
            6000-7000 r-xp 00000000 fd:01 8 /q\n7000-8000 r-xp 00000000 00:00 0";
        let mut places = Places::default();
        for raw in text.lines() {
            places.see(raw.as_bytes(), MapsLine::parse(raw.as_bytes()).as_ref());
        }
        let between = |place: &&Place| place.is_between;
        let found: Vec<_> = places.found.iter().filter(between).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].index, 0);
    }
}
