//! Tables of abbreviations: each is parsed for its units, those that several share once.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use foldhash::HashMap;
use gimli::{Abbreviations, DebugAbbrev, DebugAbbrevOffset, Dwarf, Reader, Section, UnitHeader};

use super::Slice;
use super::limits::abbreviations_length;

/// Bytes of tables reaching over others that may be parsed beyond four times what there is.
const FREE: usize = 1 << 20;

/// The tables of a module's units.
pub(super) struct Tables {
    /// Where tables start, sorted.
    starts: Vec<usize>,
    /// Those that several units share, by their places, parsed when first needed.
    shared: HashMap<usize, OnceLock<Option<Arc<Abbreviations>>>>,
    /// Bytes of tables that reach over others which may still be parsed: a file may state a place in one table for each
    /// of its units.
    left: AtomicUsize,
}

impl Tables {
    /// The tables that `headers` name, in a section of `length` bytes.
    pub(super) fn of(headers: &[UnitHeader<Slice<'_>>], length: usize) -> Self {
        let starts = headers.iter().map(|header| header.debug_abbrev_offset().0);
        let mut starts: Vec<usize> = starts.collect();
        starts.sort_unstable();
        let pairs = starts.iter().zip(starts.iter().skip(1));
        let shared = pairs.filter(|(one, next)| one == next);
        let shared = shared.map(|(&one, _)| (one, OnceLock::new())).collect();
        starts.dedup();
        Self {
            starts,
            shared,
            left: AtomicUsize::new(FREE.saturating_add(length.saturating_mul(4))),
        }
    }

    /// The table at `offset`; nothing where it is damaged, or there is more of them than is accepted.
    pub(super) fn get(
        &self,
        dwarf: &Dwarf<Slice<'_>>,
        offset: DebugAbbrevOffset,
    ) -> Option<Arc<Abbreviations>> {
        let parse = || {
            let table = self.own(dwarf, offset);
            table.or_else(|| self.long(dwarf, offset)).map(Arc::new)
        };
        match self.shared.get(&offset.0) {
            Some(table) => table.get_or_init(parse).clone(),
            None => parse(),
        }
    }

    /// The table at `offset` where it ends before the next one begins, as linkers write them.
    fn own(&self, dwarf: &Dwarf<Slice<'_>>, offset: DebugAbbrevOffset) -> Option<Abbreviations> {
        let section = dwarf.debug_abbrev.reader();
        let next = self.starts.partition_point(|&start| start <= offset.0);
        let end = self.starts.get(next).copied().unwrap_or(section.len());
        let own = section.slice().get(offset.0..end)?;
        let own = DebugAbbrev::new(own, section.endian());
        own.abbreviations(DebugAbbrevOffset(0)).ok()
    }

    /// The same for one that reaches over others: so may each of many, so it is measured first.
    fn long(&self, dwarf: &Dwarf<Slice<'_>>, offset: DebugAbbrevOffset) -> Option<Abbreviations> {
        let left = self.left.load(Relaxed);
        let length = abbreviations_length(dwarf, offset.0, left);
        // What has no end within what is left takes all of it.
        let taken = length.unwrap_or(left);
        let take = |left: usize| Some(left.saturating_sub(taken));
        let _ = self.left.fetch_update(Relaxed, Relaxed, take);
        length?;
        dwarf.debug_abbrev.abbreviations(offset).ok()
    }
}
