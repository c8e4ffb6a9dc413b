//! What was mapped where in each process of an archive, at each time. Knows no copies.

use std::sync::Arc;

use foldhash::HashMap;
use rawstack_format::record::{Batch, Mapping, ModuleKind};

use super::Unwinding;
use crate::unwind::{AddressSpace, Mapped, ModuleId};

/// Mappings that are known of one process at most.
const MAX_MAPPINGS: usize = 1 << 15;
/// Mappings that are known of all processes of an epoch at most.
const MAX_ALL: usize = 1 << 18;

/// Which rows of a process are in force: the first, and the one behind the last.
pub(super) type Version = (usize, usize);

/// The mappings of a process, with the times since when they were there.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    /// By time, those of one time in the order in which they were told.
    rows: Vec<(u64, Mapped)>,
    /// All rows in force.
    now: AddressSpace,
    is_stale: bool,
}

impl Space {
    fn add(&mut self, since_ns: u64, mapped: Mapped) {
        let place = self.rows.partition_point(|(since, _)| *since <= since_ns);
        if place == self.rows.len() && !self.is_stale {
            self.now.map(mapped);
        } else {
            self.is_stale = true;
        }
        self.rows.insert(place, (since_ns, mapped));
    }

    fn settle(&mut self) {
        if self.is_stale {
            self.now = AddressSpace::new(self.rows.iter().map(|(_, mapped)| *mapped));
            self.is_stale = false;
        }
    }

    /// The rows of a program that began at `from_ns`, as they were at `to_ns`.
    pub(super) fn version(&self, from_ns: u64, to_ns: u64) -> Version {
        let first = self.rows.partition_point(|(since, _)| *since < from_ns);
        let behind = self.rows.partition_point(|(since, _)| *since <= to_ns);
        (first, behind)
    }

    /// What is mapped in the end, and which version that is: that of all rows.
    pub(super) fn last(&self) -> (Version, &AddressSpace) {
        ((0, self.rows.len()), &self.now)
    }

    /// What was mapped in a version.
    pub(super) fn at(&self, (first, behind): Version) -> AddressSpace {
        let rows = self.rows.get(first..behind).unwrap_or_default();
        AddressSpace::new(rows.iter().map(|(_, mapped)| *mapped))
    }

    /// When the last mapping was made.
    fn changed_ns(&self) -> u64 {
        self.rows.last().map_or(0, |(since, _)| *since)
    }
}

/// The processes of an epoch by ID, as one batch finds them.
pub(super) type Known = Arc<HashMap<u32, Arc<Space>>>;

/// All processes of the epoch at hand.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    epoch: Option<u32>,
    /// Modules by index.
    modules: HashMap<u32, ModuleId>,
    known: Known,
    count: usize,
}

impl Spaces {
    /// Take the rows of `batch`, of archive number `archive`.
    pub(super) fn take(&mut self, archive: u32, batch: &Batch, unwinding: &mut Unwinding) {
        if self.epoch != Some(batch.epoch) {
            *self = Self {
                epoch: Some(batch.epoch),
                ..Self::default()
            };
        }
        for (index, module) in (batch.first_module..).zip(&batch.modules) {
            self.modules
                .insert(index, unwinding.module(archive, module));
        }
        if batch.mappings.is_empty() {
            return;
        }
        let known = Arc::make_mut(&mut self.known);
        for row in &batch.mappings {
            let space = Arc::make_mut(known.entry(row.pid).or_default());
            if space.rows.len() >= MAX_MAPPINGS || self.count >= MAX_ALL {
                continue;
            }
            let id = self.modules.get(&row.module.0).copied();
            space.add(row.since_ns, mapped(row, id, unwinding));
            self.count += 1;
        }
        for row in &batch.mappings {
            if let Some(space) = known.get_mut(&row.pid) {
                Arc::make_mut(space).settle();
            }
        }
    }

    /// What is known now.
    pub(super) fn known(&self) -> Known {
        Arc::clone(&self.known)
    }

    /// Whether any process has got a mapping since `time_ns`.
    pub(super) fn have_changed_since(&self, time_ns: u64) -> bool {
        self.known
            .values()
            .any(|space| space.changed_ns() > time_ns)
    }
}

fn mapped(row: &Mapping, id: Option<ModuleId>, unwinding: &Unwinding) -> Mapped {
    let kind = id
        .and_then(|id| unwinding.row(id))
        .map(|module| module.kind);
    Mapped {
        start: row.start.0,
        end: row.end.0,
        // Offsets in memory that belongs to no file are the addresses themselves.
        offset: match kind {
            Some(ModuleKind::Anonymous) => row.start.0,
            _ => row.offset.0,
        },
        module: id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(start: u64, offset: u64) -> Mapped {
        Mapped {
            start,
            end: start + 0x1000,
            offset,
            module: None,
        }
    }

    /// Check that at each time that is in force which was made last until then, in whatever order rows are told.
    #[test]
    fn by_time() {
        let mut space = Space::default();
        space.add(50, row(0x1000, 5));
        space.add(0, row(0x1000, 1));
        space.add(70, row(0x3000, 7));
        space.settle();
        let offset = |space: &AddressSpace, address| space.find(address).map(|held| held.offset);
        let (version, now) = space.last();
        assert_eq!((version, offset(now, 0x1800)), ((0, 3), Some(5)));
        assert_eq!(space.version(0, 100), (0, 3));
        let another = space.at(space.version(60, 100));
        assert_eq!(
            (offset(&another, 0x1800), offset(&another, 0x3800)),
            (None, Some(7))
        );
        let before = space.at(space.version(0, 49));
        assert_eq!(
            (offset(&before, 0x1800), offset(&before, 0x3800)),
            (Some(1), None)
        );
    }
}
