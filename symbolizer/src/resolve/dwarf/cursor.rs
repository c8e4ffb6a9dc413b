//! A place in the entries of a unit that can jump over children.

use gimli::{EntriesRaw, Unit, UnitOffset};

use super::Slice;

/// A place in the entries of a unit, with a depth that survives jumps.
pub(super) struct Cursor<'u, 'a> {
    unit: &'u Unit<Slice<'a>>,
    /// What is read next.
    pub(super) entries: EntriesRaw<'u, Slice<'a>>,
    base: isize,
}

impl<'u, 'a> Cursor<'u, 'a> {
    /// The start of the unit's entries.
    pub(super) fn new(unit: &'u Unit<Slice<'a>>) -> gimli::Result<Self> {
        Ok(Self {
            unit,
            entries: unit.entries_raw(None)?,
            base: 0,
        })
    }

    /// Depth of the next entry.
    pub(super) fn depth(&self) -> isize {
        self.base.saturating_add(self.entries.next_depth())
    }

    /// Step over the children of the entry at `depth` that was just read: by its sibling where one is stated.
    pub(super) fn jump(&mut self, sibling: Option<UnitOffset>, depth: isize) -> gimli::Result<()> {
        if let Some(sibling) = sibling.filter(|&sibling| sibling > self.entries.next_offset()) {
            self.entries = self.unit.entries_raw(Some(sibling))?;
            self.base = depth;
            return Ok(());
        }
        while self.depth() > depth && !self.entries.is_empty() {
            if let Some(abbreviation) = self.entries.read_abbreviation()? {
                self.entries.skip_attributes(abbreviation.attributes())?;
            }
        }
        Ok(())
    }
}
