//! Events on CPUs that come while the recording runs: the supervisor opens them, the recorder has no right to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rawstack_bpf::{Counter, Origin, PerfEvent, Programs, Rate, SideBand};
use serde::{Deserialize, Serialize};

use super::door::{Door, Order, Reply};
use crate::error::{Error, Result};

/// Longest wait for the supervisor, which opens a few descriptors only.
const LIMIT: Duration = Duration::from_secs(1);

/// A counter as it goes to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WireCounter {
    name: String,
    pmu: u32,
    config: [u64; 3],
    is_frequency: bool,
    rate: u64,
    is_clock: bool,
    exclude_user: bool,
    exclude_kernel: bool,
    cpus: Option<Vec<u32>>,
    cookie: Option<u64>,
}

impl WireCounter {
    fn new(name: &str, counter: &Counter, cookie: Option<u64>) -> Self {
        let (is_frequency, rate) = match counter.rate {
            Rate::Frequency(hz) => (true, hz),
            Rate::Period(period) => (false, period),
        };
        Self {
            name: name.to_owned(),
            pmu: counter.pmu,
            config: counter.config,
            is_frequency,
            rate,
            is_clock: counter.is_clock,
            exclude_user: counter.exclude_user,
            exclude_kernel: counter.exclude_kernel,
            cpus: counter.cpus.clone(),
            cookie,
        }
    }

    fn counter(&self) -> Counter {
        Counter {
            pmu: self.pmu,
            config: self.config,
            rate: if self.is_frequency {
                Rate::Frequency(self.rate)
            } else {
                Rate::Period(self.rate)
            },
            is_clock: self.is_clock,
            exclude_user: self.exclude_user,
            exclude_kernel: self.exclude_kernel,
            cpus: self.cpus.clone(),
        }
    }

    fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }
}

/// What was opened on a CPU.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The side-band's event.
    pub(crate) side_band: OwnedFd,
    /// Counters, which run.
    pub(crate) events: Vec<PerfEvent>,
}

/// The recorder's end.
#[derive(Debug)]
pub(crate) struct CpuDoor(Door);

impl CpuDoor {
    /// Agree on what is opened: the counters of `programs` and a side-band.
    pub(super) fn new(door: Door, programs: &Programs<'_>, build_ids: bool) -> Result<Self> {
        let system_error = |error| Error::System {
            action: "have the helper process watch for CPUs",
            error,
        };
        let mut counters = Vec::new();
        let mut descriptors = Vec::new();
        for (number, source) in programs.events().iter().enumerate() {
            if let Origin::Counter(counter) = &source.origin {
                let (program, cookie) = programs.program_of(number)?;
                counters.push(WireCounter::new(&source.name, counter, cookie));
                descriptors.push(program);
            }
        }
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let order = Order::Counters {
            counters,
            build_ids,
        };
        let agree = || {
            door.send(&order, &borrowed)?;
            match door.receive::<Reply>(None)?.0 {
                Reply::Done => Ok(()),
                reply => Err(reply.into_error()),
            }
        };
        agree().map_err(system_error)?;
        Ok(Self(door))
    }

    /// Open what was agreed on for a CPU; its counters only where it `counts`.
    pub(crate) fn open(&self, cpu: u32, counts: bool) -> io::Result<Opened> {
        self.0.send(&Order::Cpu { cpu, counts }, &[])?;
        match self.0.receive::<Reply>(Some(LIMIT))? {
            (Reply::Done, descriptors) => {
                let mut descriptors = descriptors.into_iter();
                let side_band = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
                let event = |fd| PerfEvent::from_descriptor(fd, "counter", cpu);
                Ok(Opened {
                    side_band,
                    events: descriptors.map(event).collect(),
                })
            }
            (reply, _) => Err(reply.into_error()),
        }
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct Counters {
    counters: Vec<(WireCounter, OwnedFd)>,
    build_ids: bool,
    /// Held, since their programs go with them.
    events: Vec<PerfEvent>,
}

impl Counters {
    pub(super) fn new(counters: Vec<WireCounter>, programs: Vec<OwnedFd>, build_ids: bool) -> Self {
        Self {
            counters: counters.into_iter().zip(programs).collect(),
            build_ids,
            events: Vec::new(),
        }
    }

    /// Open all for a CPU.
    pub(super) fn open(&mut self, cpu: u32, counts: bool) -> (Reply, Vec<OwnedFd>) {
        match self.try_open(cpu, counts) {
            Ok(descriptors) => (Reply::Done, descriptors),
            Err(error) => (Reply::Failed(error.to_string()), Vec::new()),
        }
    }

    fn try_open(&mut self, cpu: u32, counts: bool) -> Result<Vec<OwnedFd>> {
        self.events.retain(|event| event.cpu() != cpu);
        let mut descriptors = vec![SideBand::open_on(cpu, self.build_ids)?];
        for (spec, program) in &self.counters {
            if counts && spec.is_on(cpu) {
                let event = start(spec, program.as_fd(), cpu)?;
                descriptors.push(event.descriptor()?);
                self.events.push(event);
            }
        }
        Ok(descriptors)
    }
}

fn start(spec: &WireCounter, program: BorrowedFd<'_>, cpu: u32) -> Result<PerfEvent> {
    let mut event = PerfEvent::open(&spec.name, &spec.counter(), cpu)?;
    event.attach(program, spec.cookie)?;
    event.enable()?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a counter comes out as it went in.
    #[test]
    fn counters() {
        let clock = Counter::cpu_clock(1000);
        assert_eq!(WireCounter::new("a", &clock, None).counter(), clock);
        let other = Counter {
            rate: Rate::Frequency(7),
            exclude_kernel: true,
            config: [1, 2, 3],
            cpus: Some(vec![3]),
            ..clock
        };
        let wire = WireCounter::new("a", &other, Some(1));
        assert_eq!(wire.counter(), other);
        assert!(wire.is_on(3) && !wire.is_on(2));
    }
}
