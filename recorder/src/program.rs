//! One program in one process: what it has mapped as code, now and at any time that can still be asked for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use rawstack_bpf::NewMapping;
use rawstack_format::id::BuildId;

use crate::module::is_anonymous;
use crate::proc_fs::MapsLine;

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Addresses.
    pub(crate) addresses: Range<u64>,
    /// Where its file is mapped as it is: the same addresses, but of copied code those of another part.
    pub(crate) file_at: Range<u64>,
    /// File offset of the first address.
    pub(crate) offset: u64,
    /// `PROT_*` bits.
    pub(crate) protection: u32,
    /// Major and minor device number, inode; all 0 where not known.
    pub(crate) file: (u32, u32, u64),
    /// Path as the kernel gives it.
    pub(crate) path: Rc<[u8]>,
    /// Build ID, where the side-band told it.
    pub(crate) build_id: Option<Rc<BuildId>>,
    /// When it was made; 0: before the recording.
    pub(crate) since_ns: u64,
    /// A time at which it was there: when it was made, or else when it was first seen.
    pub(crate) seen_ns: u64,
    /// No file is behind it, and it was made over one that was: code may have been copied there from it.
    pub(crate) is_over_file: bool,
}

impl Mapping {
    pub(crate) fn from_side_band(new: NewMapping, time_ns: u64) -> Self {
        Self {
            file_at: new.addresses.clone(),
            addresses: new.addresses,
            offset: new.offset,
            protection: new.protection,
            file: new.file.unwrap_or_default(),
            path: Rc::from(new.path),
            build_id: new.build_id.as_deref().and_then(BuildId::new).map(Rc::new),
            since_ns: time_ns,
            seen_ns: time_ns,
            is_over_file: false,
        }
    }

    /// Whether both are the same, whenever they were made.
    fn is_as(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.offset == other.offset
            && self.protection == other.protection
            && self.file == other.file
            && self.path == other.path
            && self.build_id == other.build_id
    }

    /// A line of what was read at `read_ns`.
    pub(crate) fn from_maps(line: MapsLine, read_ns: u64) -> Self {
        Self {
            addresses: line.addresses,
            file_at: line.file_at,
            offset: line.offset,
            protection: line.protection,
            file: (line.device.0, line.device.1, line.inode),
            path: Rc::from(line.path),
            build_id: None,
            since_ns: 0,
            seen_ns: read_ns,
            is_over_file: false,
        }
    }
}

/// One program in one process: a fork and an exec each begin another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// Number that no other program of the recording has.
    pub(crate) number: u32,
    /// When it began; 0: before the recording.
    pub(crate) since_ns: u64,
    /// What is mapped now, by first address. A fork has its parent's until either changes.
    pub(crate) mappings: Rc<BTreeMap<u64, Rc<Mapping>>>,
    /// What was, with the time until which.
    pub(crate) past: VecDeque<(u64, Rc<Mapping>)>,
    /// Last time a mapping changed.
    pub(crate) changed_ns: u64,
    /// Counts changes of mappings.
    pub(crate) version: u32,
    /// All executable mappings are known: what lies in none of them is no code.
    pub(crate) is_whole: bool,
    /// Nothing is known of its mappings yet: they are read when they are first asked for.
    pub(crate) is_unread: bool,
    /// It was seen to run code of no file.
    pub(crate) is_jit: bool,
}

/// `PROT_READ | PROT_EXEC`.
const READ_AND_EXECUTE: u32 = 5;
/// Mappings of a program after which they are read anew: nobody tells of those that were unmapped.
const MAX_MAPPINGS: usize = 4096;

impl Program {
    /// Whether so many mappings are known that most must be gone.
    pub(crate) fn is_crowded(&self) -> bool {
        self.mappings.len() > MAX_MAPPINGS
    }

    /// Know nothing of the mappings from `time_ns` on.
    pub(crate) fn unread(&mut self, time_ns: u64) {
        self.mappings = Rc::default();
        self.past.clear();
        self.is_unread = true;
        self.changed_ns = time_ns;
        self.version += 1;
    }

    pub(crate) fn map(&mut self, mut mapping: Mapping, time_ns: u64) {
        let Range { start, end } = mapping.addresses;
        // Said again, as when code that is made goes from writable to executable time after time.
        if self
            .mappings
            .get(&start)
            .is_some_and(|old| old.is_as(&mapping))
        {
            return;
        }
        let before = self
            .mappings
            .range(..start)
            .next_back()
            .filter(|(_, old)| old.addresses.end > start);
        let covered: Vec<u64> = before
            .into_iter()
            .chain(self.mappings.range(start..end))
            .map(|(&start, _)| start)
            .collect();
        let mappings = Rc::make_mut(&mut self.mappings);
        for old in covered {
            let Some(old) = mappings.remove(&old) else {
                continue;
            };
            mapping.is_over_file |=
                is_anonymous(&mapping.path) && (!is_anonymous(&old.path) || old.is_over_file);
            // What sticks out at either side stays mapped.
            if old.addresses.start < start {
                let left = Mapping {
                    addresses: old.addresses.start..start,
                    file_at: old.addresses.start..start,
                    ..(*old).clone()
                };
                mappings.insert(left.addresses.start, Rc::new(left));
            }
            if old.addresses.end > end {
                let shift = end - old.addresses.start;
                let offset = old.offset.wrapping_add(shift);
                let right = Mapping {
                    addresses: end..old.addresses.end,
                    file_at: end..old.addresses.end,
                    offset,
                    ..(*old).clone()
                };
                mappings.insert(end, Rc::new(right));
            }
            self.past.push_back((time_ns, old));
        }
        mappings.insert(start, Rc::new(mapping));
        self.changed_ns = time_ns;
        self.version += 1;
    }

    /// The vDSO is mapped there, since the program began.
    pub(crate) fn know_vdso(&mut self, addresses: Range<u64>) {
        let start = addresses.start;
        if self.mapping(start, u64::MAX).is_some() {
            return;
        }
        let vdso = Mapping {
            file_at: addresses.clone(),
            addresses,
            offset: 0,
            protection: READ_AND_EXECUTE,
            file: (0, 0, 0),
            path: Rc::from(&b"[vdso]"[..]),
            build_id: None,
            since_ns: self.since_ns,
            seen_ns: self.since_ns,
            is_over_file: false,
        };
        Rc::make_mut(&mut self.mappings).insert(start, Rc::new(vdso));
        self.version += 1;
    }

    /// The mapping that held `address` at `time_ns`.
    pub(crate) fn mapping(&self, address: u64, time_ns: u64) -> Option<&Rc<Mapping>> {
        let holds = |mapping: &&Rc<Mapping>| mapping.addresses.contains(&address);
        let now = self
            .mappings
            .range(..=address)
            .next_back()
            .map(|(_, mapping)| mapping)
            .filter(holds);
        if time_ns >= self.changed_ns {
            return now;
        }
        let then = |(until, mapping): &&(u64, Rc<Mapping>)| {
            *until > time_ns && mapping.addresses.contains(&address)
        };
        self.past
            .iter()
            .find(then)
            .map(|(_, mapping)| mapping)
            .or(now)
    }

    /// All mappings that were there at `time_ns`, and parts of them.
    pub(crate) fn mappings_at(&self, time_ns: u64) -> Vec<Rc<Mapping>> {
        let past = self.past.iter().filter(|(until, _)| *until > time_ns);
        let past = past.map(|(_, mapping)| mapping);
        let all = past.chain(self.mappings.values());
        all.filter(|mapping| mapping.since_ns <= time_ns)
            .map(Rc::clone)
            .collect()
    }

    /// Whether all executable mappings are known: then what lies in none of them is no code.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// A number that stands for what is mapped; `None` at a time before the last change.
    pub(crate) fn version(&self, time_ns: u64) -> Option<u32> {
        (time_ns >= self.changed_ns).then_some(self.version)
    }

    pub(crate) fn forget(&mut self, before_ns: u64) {
        while self
            .past
            .front()
            .is_some_and(|(until, _)| *until < before_ns)
        {
            self.past.pop_front();
        }
    }
}

#[cfg(test)]
impl Program {
    /// One that has these addresses mapped as code, and nothing else.
    pub(crate) fn with_code(ranges: &[Range<u64>]) -> Self {
        let mapping = |range: &Range<u64>| {
            let new = NewMapping {
                addresses: range.clone(),
                ..NewMapping::default()
            };
            (range.start, Rc::new(Mapping::from_side_band(new, 0)))
        };
        Self {
            number: 1,
            is_whole: true,
            mappings: Rc::new(ranges.iter().map(mapping).collect()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(addresses: Range<u64>, path: &str, since_ns: u64) -> Mapping {
        let new = NewMapping {
            addresses,
            path: path.into(),
            ..NewMapping::default()
        };
        Mapping::from_side_band(new, since_ns)
    }

    fn paths(program: &Program, time_ns: u64) -> Vec<String> {
        let all = program.mappings_at(time_ns);
        all.iter()
            .map(|mapping| String::from_utf8_lossy(&mapping.path).into_owned())
            .collect()
    }

    /// Check that what is mapped over is among the mappings up to then, and what replaced it from then on.
    #[test]
    fn mappings_by_time() {
        let mut program = Program::default();
        program.map(mapping(0x1000..0x3000, "/a", 10), 10);
        program.map(mapping(0x5000..0x6000, "/b", 20), 20);
        program.map(mapping(0x1000..0x3000, "/c", 30), 30);
        assert!(paths(&program, 9).is_empty());
        assert_eq!(paths(&program, 25), ["/a", "/b"]);
        assert_eq!(paths(&program, 30), ["/c", "/b"]);
    }

    /// Check that a mapping that is told again as it is changes nothing, and one that differs in anything does.
    #[test]
    fn told_again() {
        let mut program = Program::default();
        program.map(mapping(0x1000..0x3000, "//anon", 10), 10);
        let before = program.version;
        program.map(mapping(0x1000..0x3000, "//anon", 20), 20);
        assert_eq!((program.version, program.changed_ns), (before, 10));
        program.map(mapping(0x1000..0x2000, "//anon", 30), 30);
        assert_eq!((program.version, program.changed_ns), (before + 1, 30));
        assert_eq!(program.mappings_at(30).len(), 2);
    }
}
