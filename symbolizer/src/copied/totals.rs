//! How many copies an archive has, and how many bytes. Knows no stacks.

use std::collections::BTreeMap;

use rawstack_format::copies::{CopyLoss, StackCopies, StackCopy};

/// Copies of stacks, which are memory of the recorded programs.
#[derive(Clone, Debug, Default)]
pub struct CopyTotals {
    /// Copies that have memory.
    pub taken: u64,
    /// Of these, copies of stacks that are larger than a copy was allowed to be.
    pub cut: u64,
    /// Of these, copies of which pages were not in memory.
    pub partial: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// User halves that have none, by why.
    pub lost: BTreeMap<CopyLoss, u64>,
}

impl CopyTotals {
    /// Whether the archive has none, and nothing is told of any.
    pub fn is_empty(&self) -> bool {
        self.taken == 0 && self.lost.is_empty()
    }

    /// Count all copies of a chunk.
    pub(crate) fn add_all(&mut self, copies: &StackCopies) {
        let mut reader = copies.reader();
        while let Some(copy) = reader.next() {
            self.add(&copy);
        }
    }

    /// Count one copy.
    pub(crate) fn add(&mut self, copy: &StackCopy<'_>) {
        if copy.loss == CopyLoss::None {
            self.taken += 1;
            self.cut += u64::from(copy.is_cut());
            self.partial += u64::from(!copy.missing.is_empty());
            self.bytes = self.bytes.saturating_add(copy.copied());
        } else {
            *self.lost.entry(copy.loss).or_default() += 1;
        }
    }

    /// Add those of another chunk.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.taken += other.taken;
        self.cut += other.cut;
        self.partial += other.partial;
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (&loss, more) in &other.lost {
            *self.lost.entry(loss).or_default() += more;
        }
    }
}
