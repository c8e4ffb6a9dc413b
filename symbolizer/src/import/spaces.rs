//! What was mapped where in each process over time. Knows neither samples nor the archive's tables.

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::HashMap;

/// Number of a mapping among all that were seen.
pub(super) type MappingNumber = u32;

/// The mappings of one process, or of several that still share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    /// Changes with each change of the mappings; processes with one number have the same.
    pub(super) number: u32,
    /// First address: address behind the last, file offset of the first, mapping.
    maps: BTreeMap<u64, (u64, u64, MappingNumber)>,
}

/// Where an address lies: its mapping, and its offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) mapping: MappingNumber,
    pub(super) offset: u64,
}

impl Space {
    /// Where `address` lies.
    pub(super) fn find(&self, address: u64) -> Option<Place> {
        let (start, &(end, offset, mapping)) = self.maps.range(..=address).next_back()?;
        (address < end).then_some(Place {
            mapping,
            offset: offset.wrapping_add(address - start),
        })
    }

    /// Take what lies in `start..end` away: of mappings that reach over it their rests stay.
    fn clear(&mut self, start: u64, end: u64) {
        let first = self.maps.range(..start).next_back();
        let before = first.filter(|(_, (held, _, _))| *held > start);
        let inside = self.maps.range(start..end);
        let touched: Vec<_> = before
            .into_iter()
            .chain(inside)
            .map(|(at, map)| (*at, *map))
            .collect();
        for (at, (held, offset, mapping)) in touched {
            self.maps.remove(&at);
            if at < start {
                self.maps.insert(at, (start, offset, mapping));
            }
            if held > end {
                let rest = offset.wrapping_add(end - at);
                self.maps.insert(end, (held, rest, mapping));
            }
        }
    }
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    processes: HashMap<u32, Rc<Space>>,
    numbers: u32,
}

impl Spaces {
    /// The mappings of `pid`.
    pub(super) fn of(&self, pid: u32) -> Option<&Space> {
        self.processes.get(&pid).map(|space| &**space)
    }

    fn change(&mut self, pid: u32, change: impl FnOnce(&mut Space)) {
        let space = Rc::make_mut(self.processes.entry(pid).or_default());
        change(space);
        self.numbers += 1;
        space.number = self.numbers;
    }

    /// Something was mapped at `start..end`; `mapping` is none where it is not executable.
    pub(super) fn map(
        &mut self,
        pid: u32,
        (start, end): (u64, u64),
        offset: u64,
        mapping: Option<MappingNumber>,
    ) {
        if end <= start {
            return;
        }
        self.change(pid, |space| {
            space.clear(start, end);
            if let Some(mapping) = mapping {
                space.maps.insert(start, (end, offset, mapping));
            }
        });
    }

    /// Process `child` begins with what `parent` has.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        if let Some(space) = self.processes.get(&parent) {
            let space = Rc::clone(space);
            self.processes.insert(child, space);
        } else {
            self.processes.remove(&child);
        }
    }

    /// Process `pid` executes another program.
    pub(super) fn exec(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a mapping over others leaves their rests with their offsets, and that a child keeps what its parent
    /// had when its parent changes.
    #[test]
    fn overlaps_and_forks() {
        let mut spaces = Spaces::default();
        spaces.map(1, (0x1000, 0x5000), 0x100, Some(7));
        spaces.fork(1, 2);
        spaces.map(1, (0x2000, 0x3000), 0, Some(8));
        let place = |spaces: &Spaces, pid, address| {
            let found = spaces.of(pid).and_then(|space| space.find(address));
            found.map(|place| (place.mapping, place.offset))
        };
        assert_eq!(place(&spaces, 1, 0x1fff), Some((7, 0x10ff)));
        assert_eq!(place(&spaces, 1, 0x2000), Some((8, 0)));
        assert_eq!(place(&spaces, 1, 0x3000), Some((7, 0x2100)));
        assert_eq!(place(&spaces, 1, 0x5000), None);
        assert_eq!(place(&spaces, 2, 0x2000), Some((7, 0x1100)));
        let parent = spaces.of(1).map(|space| space.number);
        assert_ne!(parent, spaces.of(2).map(|space| space.number));
        spaces.map(1, (0, 0x6000), 0, None);
        assert_eq!(place(&spaces, 1, 0x2000), None);
        spaces.exec(2);
        assert_eq!(place(&spaces, 2, 0x2000), None);
    }
}
