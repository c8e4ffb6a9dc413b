//! Puts records into the order of their times, as far as rounds need it, in bounded memory.

use std::collections::BTreeMap;
use std::collections::VecDeque;

/// Bytes that wait for their order at most; then the earliest go on.
const MAX_WAITING: usize = 192 << 20;
/// What a record takes besides its bytes, about.
const OVERHEAD: usize = 96;

/// A record of perf, undecoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// Event that it is of.
    pub(super) event: usize,
    pub(super) body: Box<[u8]>,
}

/// Records that wait. Those of one round are not earlier than those of the last but one.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    waiting: BTreeMap<(u64, u64), Raw>,
    ready: VecDeque<(u64, Raw)>,
    bytes: usize,
    number: u64,
    /// Latest time so far, and up to the round before.
    latest: u64,
    last_latest: u64,
    /// Latest time that was given out.
    given: u64,
    /// Records that came when later ones were already given out.
    pub(super) late: u64,
}

impl Rounds {
    /// Take a record. Without a time it does not wait.
    pub(super) fn push(&mut self, time: Option<u64>, raw: Raw) {
        let Some(time) = time.filter(|&time| time != 0 && time != u64::MAX) else {
            self.ready.push_back((0, raw));
            return;
        };
        self.late += u64::from(time < self.given);
        self.latest = self.latest.max(time);
        self.bytes += raw.body.len() + OVERHEAD;
        self.waiting.insert((time, self.number), raw);
        self.number += 1;
        while self.bytes > MAX_WAITING {
            self.give_first();
        }
    }

    /// A round is over.
    pub(super) fn end_round(&mut self) {
        while self
            .waiting
            .first_key_value()
            .is_some_and(|((time, _), _)| *time <= self.last_latest)
        {
            self.give_first();
        }
        self.last_latest = self.latest;
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) {
        while !self.waiting.is_empty() {
            self.give_first();
        }
    }

    fn give_first(&mut self) {
        if let Some(((time, _), raw)) = self.waiting.pop_first() {
            self.bytes = self.bytes.saturating_sub(raw.body.len() + OVERHEAD);
            self.given = self.given.max(time);
            self.ready.push_back((time, raw));
        }
    }

    /// The next record with its time, 0 where it has none.
    pub(super) fn pop(&mut self) -> Option<(u64, Raw)> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u32) -> Raw {
        Raw {
            kind,
            misc: 0,
            event: 0,
            body: Box::default(),
        }
    }

    fn times(rounds: &mut Rounds) -> Vec<u64> {
        std::iter::from_fn(|| rounds.pop())
            .map(|(time, _)| time)
            .collect()
    }

    /// Check that a round is held until the next one ends, that both come out by time, and what has none at once.
    #[test]
    fn two_rounds() {
        let mut rounds = Rounds::default();
        for time in [30, 10] {
            rounds.push(Some(time), raw(0));
        }
        rounds.push(None, raw(1));
        rounds.end_round();
        assert_eq!(times(&mut rounds), [0]);
        for time in [20, 50, 40] {
            rounds.push(Some(time), raw(0));
        }
        rounds.end_round();
        assert_eq!(times(&mut rounds), [10, 20, 30]);
        rounds.push(Some(5), raw(0));
        assert_eq!(rounds.late, 1);
        rounds.end();
        assert_eq!(times(&mut rounds), [5, 40, 50]);
    }

    /// Check that records of one time keep their order.
    #[test]
    fn same_time() {
        let mut rounds = Rounds::default();
        for kind in 0..5 {
            rounds.push(Some(7), raw(kind));
        }
        rounds.end();
        let kinds: Vec<u32> = std::iter::from_fn(|| rounds.pop())
            .map(|(_, raw)| raw.kind)
            .collect();
        assert_eq!(kinds, [0, 1, 2, 3, 4]);
    }
}
