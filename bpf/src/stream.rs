//! The user-space end of `capture.bpf.h`'s maps, whichever program includes it: events, and what is still owed.

use std::cell::RefCell;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::{Map, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use crate::error::{Error, Result};
use crate::event::{Event, Loss, LossReason};
use crate::mapped_array::MappedArray;
use crate::skel::types::{cpu_state, loss, slot};

/// Events that are taken out of the ring buffer at once, before anyone looks at them.
const BATCH: usize = 1024;

/// Bytes of events that end a batch early: copies of stacks are large.
const BATCH_BYTES: usize = 1 << 20;

/// What a callback gives to libbpf to end a batch. It comes back as the result.
const ENOUGH: i32 = -105;

/// What a thread owes, as its slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// Thread ID.
    pub tid: u32,
    /// ID of the last user half that was asked for.
    pub owner: u64,
    /// It was sent.
    pub done: bool,
}

/// What the kernel counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The last ID reserved on each CPU and level that has any: those below it of the same CPU and level are, too.
    pub last_ids: Vec<u64>,
    /// IDs reserved, samples without a number included.
    pub reserved: u64,
    /// Losses that did not get into the stream any more.
    pub untold: Vec<Loss>,
}

/// The events of one object that includes `capture.bpf.h`.
///
/// One reader: each event comes out once.
pub struct Stream {
    ring: RingBuffer<'static>,
    batch: Rc<RefCell<Batch>>,
    events: OwnedFd,
    slots: MapHandle,
    cpu_states: MappedArray,
}

/// Events as they lay in the ring buffer, one behind the other, with their ends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    /// Read from the maps `events`, `slots` and `cpu_states` of a loaded object.
    pub fn new(events: &Map<'_>, slots: &Map<'_>, cpu_states: &Map<'_>) -> Result<Self> {
        let batch = Rc::new(RefCell::new(Batch::default()));
        let filled = Rc::clone(&batch);
        let mut builder = RingBufferBuilder::new();
        let take = move |event: &[u8]| {
            let mut batch = filled.borrow_mut();
            batch.bytes.extend_from_slice(event);
            let end = batch.bytes.len();
            batch.ends.push(end);
            if end >= BATCH_BYTES { ENOUGH } else { 0 }
        };
        let map_error = |map| move |error| Error::Map { map, error };
        builder.add(events, take).map_err(map_error("events"))?;
        Ok(Self {
            ring: builder.build().map_err(map_error("events"))?,
            batch,
            events: events.as_fd().try_clone_to_owned().map_err(Error::Wait)?,
            slots: duplicate(slots, "slots")?,
            cpu_states: MappedArray::new(cpu_states, "cpu_states")?,
        })
    }

    /// Becomes readable when events wait, as far as the configured wake-up allows. For `epoll` or `poll`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Take up to a batch of events out of the ring buffer. Returns how many; they wait in [`events`](Self::events).
    ///
    /// Whatever happened before the last of them, as the kernel told it elsewhere, can be read now: read it before
    /// the events, and each finds the world as it was.
    pub fn fill(&mut self) -> Result<usize> {
        {
            let mut batch = self.batch.borrow_mut();
            batch.bytes.clear();
            batch.ends.clear();
        }
        let taken = self.ring.consume_raw_n(BATCH);
        if taken < 0 && taken != ENOUGH {
            return Err(Error::Map {
                map: "events",
                error: libbpf_rs::Error::from_raw_os_error(-taken),
            });
        }
        Ok(self.batch.borrow().ends.len())
    }

    /// Hand out the events of the last [`fill`](Self::fill) in the kernel's order.
    pub fn events(&self, mut handle: impl FnMut(Event<'_>)) {
        let batch = self.batch.borrow();
        let mut start = 0;
        for &end in &batch.ends {
            if let Some(event) = batch.bytes.get(start..end).and_then(Event::parse) {
                handle(event);
            }
            start = end;
        }
    }

    /// What the thread owes, if it has been sampled and lives.
    pub fn debt(&self, tid: u32) -> Option<Debt> {
        let value = self
            .slots
            .lookup(&tid.to_ne_bytes(), MapFlags::ANY)
            .ok()
            .flatten()?;
        let word = |at: usize| Some(u64::from_ne_bytes(*value.get(at..)?.first_chunk()?));
        Some(Debt {
            tid,
            owner: word(offset_of!(slot, owner))?,
            done: word(offset_of!(slot, done))? != 0,
        })
    }

    /// What the kernel counted up to now.
    pub fn counts(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        for (cpu, value) in self.cpu_states.values().enumerate() {
            counts.add_cpu(u32::try_from(cpu).unwrap_or(u32::MAX), &value);
        }
        Ok(counts)
    }
}

/// A descriptor of its own. Not through the map's ID: that takes CAP_SYS_ADMIN.
fn duplicate(map: &Map<'_>, name: &'static str) -> Result<MapHandle> {
    MapHandle::try_from(map).map_err(|error| Error::Map { map: name, error })
}

impl Counts {
    fn add_cpu(&mut self, cpu: u32, value: &[u8]) {
        let word = |at: usize| {
            value
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let levels = size_of_array(
            offset_of!(cpu_state, next),
            offset_of!(cpu_state, unnumbered),
        );
        for level in 0..levels {
            let count = word(offset_of!(cpu_state, next) + level * 8);
            self.reserved += count;
            if count > 0 {
                self.last_ids
                    .push(u64::from(cpu) << 48 | (level as u64) << 44 | count);
            }
        }
        self.reserved += word(offset_of!(cpu_state, unnumbered));
        for (number, reason) in [
            (0, LossReason::BufferFull),
            (1, LossReason::Contended),
            (3, LossReason::UserHalf),
        ] {
            let at = offset_of!(cpu_state, losses) + number * size_of::<loss>();
            let count = word(at + offset_of!(loss, count)) - word(at + offset_of!(loss, told));
            if count > 0 {
                let from_ns = word(at + offset_of!(loss, from_ns));
                let to_ns = word(at + offset_of!(loss, to_ns));
                self.untold.push(Loss {
                    reason,
                    cpu,
                    count,
                    from_ns,
                    to_ns,
                });
            }
        }
    }
}

/// Elements of an array of words that lies between two fields.
const fn size_of_array(start: usize, end: usize) -> usize {
    (end - start) / size_of::<u64>()
}
