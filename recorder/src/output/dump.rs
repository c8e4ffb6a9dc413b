//! What a flight recorder holds, written as an archive that is complete in itself.

use std::time::Duration;

use std::sync::Arc;

use rawstack_format::record::{End, Record, Recording};

use super::queue::Job;
use super::{Filled, Held, Output};
use crate::error::Result;
use crate::totals::Totals;

/// However short a flight recorder's time is.
const SHORTEST_SLEEP: Duration = Duration::from_millis(100);

impl Output {
    /// Whether this is a flight recorder, and what it holds should be a new epoch's from `now_ns` on.
    pub(crate) fn wants_epoch(&self, now_ns: u64) -> bool {
        let flight = self.flight.as_ref();
        flight.is_some_and(|flight| flight.wants_epoch(now_ns))
    }

    /// Longest sleep from `now_ns` on with which a flight recorder's epochs are about as long as they should be, or the next
    /// archive begins in time.
    pub(crate) fn longest_sleep(&self, now_ns: u64) -> Option<Duration> {
        match &self.flight {
            Some(flight) => flight.part().map(|part| part.max(SHORTEST_SLEEP)),
            None => self.until_rotation(now_ns),
        }
    }

    /// Whether this is a flight recorder.
    pub(crate) fn is_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether all that was handed over is written: only then may more be dumped, or memory would have no bound.
    pub(crate) fn can_dump(&self) -> bool {
        !self.queue.is_busy()
    }

    /// Write what a flight recorder holds, and `last` behind it, as the next archive. It goes on to hold what it holds.
    /// The states of `end` are counted here; its `reserved` is what all of the recording misses, 0 when all is well.
    pub(crate) fn dump(&mut self, recording: &Recording, last: &[Record], end: End) -> Result<()> {
        let chunks = self.dumped(recording, last, &end)?;
        self.queue.push(Job::Open);
        self.archive = Filled::new();
        let mut totals = Totals::default();
        for Held {
            encoded,
            totals: own,
        } in chunks
        {
            totals.add(&own);
            self.push(encoded, totals.counters(), own.samples);
        }
        let end = End {
            reserved: totals.ids().wrapping_add(end.reserved),
            states: totals.states,
            ..end
        };
        let encoded = Arc::new(self.encode(&Record::End(end))?);
        self.push(encoded, totals.counters(), 0);
        self.queue.push(Job::Close);
        Ok(())
    }

    /// The chunks of the archive, its end aside.
    fn dumped(&mut self, recording: &Recording, last: &[Record], end: &End) -> Result<Vec<Held>> {
        let plain = |encoded| Held {
            encoded,
            totals: Totals::default(),
        };
        let mut segments: Vec<(u32, Vec<Held>)> = Vec::new();
        let mut recording = Recording {
            start_ns: end.end_ns,
            start_wall_ns: end.end_wall_ns,
            ..recording.clone()
        };
        if let Some(flight) = &mut self.flight {
            flight.forget(end.end_ns);
            let held = flight.segments();
            segments.extend(held.map(|segment| (segment.epoch, segment.chunks.clone())));
            if let Some(first) = flight.segments().next() {
                (recording.start_ns, recording.start_wall_ns) = first.start_ns;
            }
        }
        let mut chunks = Vec::new();
        for (epoch, held) in segments {
            recording.epoch = epoch;
            let start = self.encode(&Record::Recording(recording.clone()))?;
            chunks.push(plain(Arc::new(start)));
            if chunks.len() == 1 {
                chunks.extend(self.preamble.iter().map(Arc::clone).map(plain));
            }
            chunks.extend(held);
        }
        for record in last {
            let encoded = Arc::new(self.encode(record)?);
            let totals = match record {
                Record::Batch(batch) => Totals::of(batch),
                _ => Totals::default(),
            };
            chunks.push(Held { encoded, totals });
        }
        Ok(chunks)
    }
}
