//! The account of IDs: how many there are, how each ended, and what was lost.

use rawstack_format::Counters;
use rawstack_format::record::{Batch, Drop, DropReason, State};

use crate::copies::CopyCounts;

/// The account of all IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// IDs by state, in the order of [`State::ALL`]. What still waits is in none.
    pub(crate) states: [u64; 8],
    /// Sample rows.
    pub(crate) samples: u64,
    /// Losses of all kinds, joined by reason.
    pub(crate) drops: Vec<Drop>,
    /// Copies of stacks.
    pub(crate) copies: CopyCounts,
}

impl Totals {
    /// Count `ids` in `state`.
    pub(crate) fn count(&mut self, state: State, ids: u64) {
        if let Some(count) = self.states.get_mut(state as usize) {
            *count += ids;
        }
    }

    /// Losses for one reason.
    pub(crate) fn lost_for(&self, reason: DropReason) -> u64 {
        let of_reason = self.drops.iter().filter(|drop| drop.reason == reason);
        of_reason.map(|drop| drop.count).sum()
    }

    /// Count a loss under its reason; the state of its IDs is counted apart.
    pub(crate) fn count_drop(&mut self, drop: &Drop) {
        match self
            .drops
            .iter_mut()
            .find(|known| known.reason == drop.reason)
        {
            Some(known) => {
                known.count += drop.count;
                known.from_ns = known.from_ns.min(drop.from_ns);
                known.to_ns = known.to_ns.max(drop.to_ns);
            }
            None => self.drops.push(Drop {
                cpu: u32::MAX,
                ..*drop
            }),
        }
    }

    /// All IDs, whatever their state.
    pub(crate) fn ids(&self) -> u64 {
        self.states.iter().sum()
    }

    /// Add the account of an archive that has ended.
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        for (state, ids) in State::ALL.into_iter().zip(other.states) {
            self.count(state, ids);
        }
        for drop in &other.drops {
            self.count_drop(drop);
        }
        self.copies.add(&other.copies);
    }

    /// The account of a batch in which nothing waits any more.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut totals = Self {
            samples: batch.samples.len() as u64,
            ..Self::default()
        };
        for sample in &batch.samples {
            totals.count(sample.state, 1);
        }
        for drop in &batch.drops {
            totals.count_drop(drop);
            if drop.reason.counts_ids() {
                totals.count(State::Dropped, drop.count);
            }
        }
        totals
    }

    /// The totals that a chunk's frame gives, when this is the account up to and including it.
    pub(crate) fn counters(&self) -> Counters {
        let (buffer_full, contended, unwritten) = (
            self.lost_for(DropReason::BufferFull),
            self.lost_for(DropReason::Contended),
            self.lost_for(DropReason::Unwritten),
        );
        Counters {
            ids: self.samples + buffer_full + contended + unwritten,
            buffer_full,
            contended,
            unwritten,
        }
    }
}

#[cfg(test)]
mod tests {
    use rawstack_format::record::Sample;

    use super::*;

    /// Check that the account of a batch counts each row once, and losses of IDs as dropped.
    #[test]
    fn of_a_batch() {
        let sample = |state| Sample {
            state,
            ..Sample::default()
        };
        let drop = |reason, count, from_ns| Drop {
            reason,
            count,
            from_ns,
            to_ns: from_ns + 1,
            ..Drop::default()
        };
        let batch = Batch {
            samples: vec![sample(State::Complete), sample(State::Pending)],
            drops: vec![
                drop(DropReason::Unwritten, 5, 10),
                drop(DropReason::SideBand, 7, 20),
                drop(DropReason::Unwritten, 1, 3),
            ],
            ..Batch::default()
        };
        let mut totals = Totals::of(&batch);
        assert_eq!((totals.samples, totals.ids()), (2, 8));
        assert_eq!(totals.states, [1, 0, 0, 0, 0, 0, 6, 1]);
        assert_eq!((totals.counters().ids, totals.counters().unwritten), (8, 6));
        totals.add(&Totals::of(&batch));
        assert_eq!(
            (totals.ids(), totals.lost_for(DropReason::SideBand)),
            (16, 14)
        );
        let unwritten = &totals.drops[0];
        assert_eq!((unwritten.from_ns, unwritten.to_ns), (3, 11));
    }
}
