//! The last of a recording, in memory: encoded chunks, of which whole epochs go when there are too many or too old.
//!
//! A chunk means nothing without the tables of its epoch, so epochs are short here, and are kept or dropped whole.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rawstack_format::Encoded;

use crate::totals::Totals;

/// Parts of the window that an epoch should be.
const PARTS: u32 = 8;

/// A chunk that is held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The chunk.
    pub(super) encoded: Arc<Encoded>,
    /// What it accounts for.
    pub(super) totals: Totals,
}

/// The chunks of one epoch.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its number.
    pub(super) epoch: u32,
    /// When it began: monotonic and wall clock.
    pub(super) start_ns: (u64, u64),
    /// Its chunks, in order; the recording chunk is not among them.
    pub(super) chunks: Vec<Held>,
    bytes: u64,
}

/// What is held.
#[derive(Debug)]
pub(super) struct Flight {
    /// Bytes of chunks that are held at most.
    max_bytes: u64,
    /// Time that they are to reach back.
    window: Option<Duration>,
    segments: VecDeque<Segment>,
    bytes: u64,
}

impl Flight {
    /// Nothing is held.
    pub(super) fn new(max_bytes: u64, window: Option<Duration>) -> Self {
        Self {
            max_bytes,
            window,
            segments: VecDeque::new(),
            bytes: 0,
        }
    }

    /// An epoch begins; what is too old by then goes.
    pub(super) fn start_epoch(&mut self, epoch: u32, start_ns: (u64, u64)) {
        self.segments.push_back(Segment {
            epoch,
            start_ns,
            chunks: Vec::new(),
            bytes: 0,
        });
        self.forget(start_ns.0);
    }

    /// Hold a chunk of the epoch that goes on.
    pub(super) fn add(&mut self, held: Held) {
        let Some(segment) = self.segments.back_mut() else {
            return;
        };
        let bytes = held.encoded.len_in_file();
        segment.bytes += bytes;
        self.bytes += bytes;
        segment.chunks.push(held);
        while self.bytes > self.max_bytes && self.segments.len() > 1 {
            self.pop();
        }
    }

    /// Whether the epoch that goes on is long enough at `now_ns`.
    pub(super) fn wants_epoch(&self, now_ns: u64) -> bool {
        let Some(segment) = self.segments.back() else {
            return false;
        };
        let is_old = |part: Duration| {
            let age = Duration::from_nanos(now_ns.saturating_sub(segment.start_ns.0));
            age >= part
        };
        segment.bytes >= self.max_bytes / u64::from(PARTS) || self.part().is_some_and(is_old)
    }

    /// How long an epoch goes on, where that is a matter of time.
    pub(super) fn part(&self) -> Option<Duration> {
        self.window.map(|window| window / PARTS)
    }

    /// What is held, the oldest first.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }

    /// Let go what the window no longer needs at `now_ns`: all that ended before it.
    pub(super) fn forget(&mut self, now_ns: u64) {
        let Some(window) = self.window else { return };
        let is_before = |segment: &Segment| {
            Duration::from_nanos(now_ns.saturating_sub(segment.start_ns.0)) >= window
        };
        while self.segments.get(1).is_some_and(is_before) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.bytes -= segment.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use rawstack_format::Encoder;
    use rawstack_format::record::{End, Record};

    use super::*;

    fn held() -> Held {
        let record = Record::End(End::default());
        Held {
            encoded: Arc::new(Encoder::new(1).unwrap().encode(&record).unwrap()),
            totals: Totals::default(),
        }
    }

    fn epochs(flight: &Flight) -> Vec<u32> {
        flight.segments().map(|segment| segment.epoch).collect()
    }

    /// Check that what is held reaches back the whole window and not an epoch further.
    #[test]
    fn by_time() {
        let mut flight = Flight::new(u64::MAX, Some(Duration::from_nanos(80)));
        flight.start_epoch(0, (100, 0));
        assert!(!flight.wants_epoch(109) && flight.wants_epoch(110));
        for epoch in 1..12 {
            flight.start_epoch(epoch, (100 + u64::from(epoch) * 10, 0));
            flight.add(held());
        }
        // The last began at 210: the window reaches back to 130, where epoch 3 begins.
        assert_eq!(epochs(&flight), (3..12).collect::<Vec<_>>());
        // What lies before goes with the next epoch, however long that one is in coming.
        flight.start_epoch(12, (5000, 0));
        assert_eq!(epochs(&flight), [11, 12]);
    }

    /// Check that the oldest epochs go when their chunks are too long, but never the one that goes on.
    #[test]
    fn by_size() {
        let bytes = held().encoded.len_in_file();
        let mut flight = Flight::new(bytes * 16, None);
        for epoch in 0..20 {
            flight.start_epoch(epoch, (u64::from(epoch), 0));
            assert!(!flight.wants_epoch(u64::MAX));
            flight.add(held());
            flight.add(held());
            assert!(flight.wants_epoch(0));
        }
        assert_eq!(epochs(&flight), (12..20).collect::<Vec<_>>());
        for _ in 0..100 {
            flight.add(held());
        }
        assert_eq!(epochs(&flight), [19]);
    }
}
