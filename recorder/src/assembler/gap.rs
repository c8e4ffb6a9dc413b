//! A time in which nothing can be written and memory is used up: samples are counted, and kept no longer.
//!
//! What is told of processes, and user halves of samples that were kept before, are taken in as ever: so all that comes
//! behind the gap is right.

use rawstack_format::record::Drop;

use super::Assembler;

impl Assembler {
    /// From here on samples are counted as unwritten. One row for each reason says so when the gap ends.
    pub(crate) fn start_gap(&mut self) {
        self.gap.get_or_insert_default();
    }

    /// Samples are kept again.
    pub(crate) fn end_gap(&mut self) {
        for drop in self.gap.take().into_iter().flatten() {
            self.add_drop(drop);
        }
    }

    /// Whether samples are only counted.
    pub(crate) fn is_in_gap(&self) -> bool {
        self.gap.is_some()
    }

    pub(super) fn add_to_gap(&mut self, drop: Drop) {
        let Some(gap) = &mut self.gap else { return };
        match gap.iter_mut().find(|known| known.reason == drop.reason) {
            Some(known) => {
                known.count += drop.count;
                known.from_ns = known.from_ns.min(drop.from_ns);
                known.to_ns = known.to_ns.max(drop.to_ns);
            }
            None => gap.push(Drop {
                cpu: u32::MAX,
                ..drop
            }),
        }
    }
}
