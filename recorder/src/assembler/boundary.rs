//! Where a batch, an epoch or an archive ends, and what becomes there of rows whose user half is still to come.
//!
//! A batch that is written takes its rows along, as pending, so that a kill does not lose them; their outcome follows in
//! a later batch. It cannot follow in another archive. So when an archive ends and the recording goes on, rows of the
//! batch at hand that wait are carried into the next archive, and those of batches before it, which have waited for long
//! already, stay pending for good: their thread was still in the kernel when their archive ended.

use std::mem;

use rawstack_format::Counters;
use rawstack_format::record::{EPOCH_CHUNKS, Sample, State};

use super::{Assembler, CARRY_NS, Cut, Item};
use crate::epoch::Epoch;
use crate::totals::Totals;

/// Rows that are carried from one batch to the next at most; of more, the oldest stay pending for good.
const MAX_CARRIED: usize = 4096;

impl Assembler {
    /// Close the batch that is being filled. Rows that still wait are written as pending, or carried into the next
    /// where that is asked for.
    pub(crate) fn cut(&mut self) {
        let ends_epoch =
            |assembler: &Self| assembler.epoch.is_full() || assembler.batches >= EPOCH_CHUNKS;
        self.close(ends_epoch);
    }

    /// As [`cut`](Self::cut), and start a new epoch.
    pub(crate) fn end_epoch(&mut self) {
        self.close(|_| true);
    }

    /// The batch that is being filled, as if it were cut here. Its rows that wait are pending.
    pub(crate) fn peek(&mut self) -> Cut {
        Cut {
            batch: self.epoch.batch().clone(),
            counters: self.counters,
            starts_epoch: self.starts_epoch,
            symbols: self.epoch.symbols_to_come(),
            copies: self.copies.peek(),
        }
    }

    /// End the archive that is being filled, and begin another with an epoch of its own. The account of the one that
    /// ended: its last batches are among the cuts.
    pub(crate) fn end_archive(&mut self) -> Totals {
        let carried = self.take_waiting();
        let mut pending = 0;
        self.join.retain(|item| match item {
            Item::Row(_) => true,
            Item::Written { rows, .. } => {
                pending += *rows;
                false
            }
        });
        self.totals.count(State::Pending, pending);
        if self.has_rows() {
            self.close_batch();
        }
        let totals = mem::take(&mut self.totals);
        self.past.add(&totals);
        self.counters = Counters::default();
        self.next_epoch(0, carried);
        totals
    }

    fn close(&mut self, ends_epoch: impl Fn(&Self) -> bool) {
        let carried = if self.holds_waiting {
            self.take_waiting()
        } else {
            self.mark_written();
            Vec::new()
        };
        // Where all rows wait there is nothing to close: what they need of the tables goes with them.
        if self.has_rows() || !self.copies.is_empty() || self.epoch.bytes() >= self.batch_limit {
            self.close_batch();
        }
        if ends_epoch(self) {
            self.next_epoch(self.epoch.number() + 1, carried);
        } else {
            self.put_back(carried);
        }
    }

    fn close_batch(&mut self) {
        let mut copies = self.copies.take();
        for batch in self.epoch.cut() {
            let starts_epoch = mem::take(&mut self.starts_epoch);
            self.cuts.push(Cut {
                batch,
                counters: self.counters,
                starts_epoch,
                symbols: self.epoch.take_symbols(),
                copies: mem::take(&mut copies),
            });
            self.batches += 1;
        }
    }

    /// Remember of rows that wait only how many they are: they are about to be written.
    fn mark_written(&mut self) {
        let samples = mem::take(&mut self.epoch.batch().samples);
        self.join.replace_items(|items| {
            let (mut rows, mut cut) = (0, 0);
            for item in items.iter() {
                let (more, more_cut) = match *item {
                    Item::Row(row) => {
                        let sample = samples.get(row);
                        (1, sample.map_or(0, |sample| u64::from(sample.kernel_cut)))
                    }
                    Item::Written { rows, cut } => (rows, cut),
                };
                (rows, cut) = (rows + more, cut + more_cut);
            }
            Item::Written { rows, cut }
        });
        self.epoch.batch().samples = samples;
    }

    /// Take the rows that wait out of the batch, and out of the account. They wait on, under new numbers.
    fn take_waiting(&mut self) -> Vec<Sample> {
        let mut samples = mem::take(&mut self.epoch.batch().samples);
        let mut waits = vec![false; samples.len()];
        self.join.retain(|item| {
            if let Item::Row(row) = item
                && let Some(waits) = waits.get_mut(*row)
            {
                *waits = true;
            }
            true
        });
        let waiting = waits.iter().filter(|waits| **waits).count();
        let given_up = waiting.saturating_sub(MAX_CARRIED);
        let rows = waits.iter().enumerate().filter(|(_, waits)| **waits);
        let mut places = vec![None; samples.len()];
        let mut carried = Vec::new();
        for (row, _) in rows.skip(given_up) {
            if let (Some(place), Some(sample)) = (places.get_mut(row), samples.get(row)) {
                *place = Some(carried.len());
                carried.push(*sample);
            }
        }
        self.join.retain(|item| match item {
            Item::Row(row) => match places.get(*row).copied().flatten() {
                Some(place) => {
                    *row = place;
                    true
                }
                None => false,
            },
            Item::Written { .. } => true,
        });
        let mut staying = places.iter().map(Option::is_none);
        samples.retain(|_| staying.next().unwrap_or(true));
        self.epoch.batch().samples = samples;
        self.totals.count(State::Pending, given_up as u64);
        self.totals.samples -= carried.len() as u64;
        self.counters.ids -= carried.len() as u64;
        carried
    }

    /// Begin the next batch with rows that wait.
    fn put_back(&mut self, carried: Vec<Sample>) {
        self.totals.samples += carried.len() as u64;
        self.counters.ids += carried.len() as u64;
        self.carried_bytes = carried.len() * Sample::RAW_BOUND;
        self.epoch.batch().samples = carried;
    }

    fn next_epoch(&mut self, number: u32, mut carried: Vec<Sample>) {
        let before = mem::replace(&mut self.epoch, Epoch::new(number, self.limits));
        self.batches = 0;
        self.starts_epoch = true;
        let (epoch, world) = (&mut self.epoch, &self.world);
        let from_ns = self.last_ns.saturating_sub(CARRY_NS);
        self.join.retain_outcomes(|outcome| {
            let is_recent = outcome.time_ns >= from_ns;
            if is_recent {
                outcome.user = epoch.carry(world, &before, outcome.user);
            }
            is_recent
        });
        for sample in &mut carried {
            self.epoch
                .put_task(&mut self.world, sample.pid, sample.tid, sample.time_ns);
            sample.kernel = self.epoch.carry(&self.world, &before, sample.kernel);
        }
        let epoch = &self.epoch;
        self.world.forget_modules(|module| epoch.uses(module));
        self.put_back(carried);
    }
}
