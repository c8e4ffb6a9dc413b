//! From events as they were named to what the kernel is asked for: looked up on this host, with suggestions for what is
//! not here. Knows no recording.

mod counter;
mod library;
mod plt;
mod pmu;
mod probe;
mod starts;
mod suggest;
mod symbols;
mod tracepoint;
mod usdt;

use std::time::Duration;

use rawstack_bpf::{self as bpf, OffCpu, Origin, Source};
use rawstack_format::record::Event as EventRow;

use crate::error::{Error, Result};
use crate::event_spec::{EventKind, EventSpec};
use crate::options::Rate;

/// The events of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// For the archive; a sample's event is an index here.
    pub(crate) rows: Vec<EventRow>,
    /// For the kernel; several may belong to one row.
    pub(crate) sources: Vec<Source>,
    /// Time blocked, where it is one of the rows.
    pub(crate) off_cpu: Option<OffCpu>,
    /// Where something else than asked for happens, one line each.
    pub(crate) notes: Vec<String>,
}

impl Events {
    /// Find all of `specs` on this host.
    pub(crate) fn find(specs: &[EventSpec], rate: Rate) -> Result<Self> {
        let mut events = Self::default();
        for spec in specs {
            events.add(spec, rate)?;
        }
        Ok(events)
    }

    /// Samples a second that each CPU makes at most, where that can be told.
    pub(crate) fn samples_per_second(&self) -> Option<u64> {
        if self.off_cpu.is_some() {
            return None;
        }
        let rate = |source: &Source| match &source.origin {
            Origin::Counter(counter) => match counter.rate {
                rawstack_bpf::Rate::Frequency(hz) => Some(hz),
                rawstack_bpf::Rate::Period(ns) if counter.is_clock => {
                    1_000_000_000u64.checked_div(ns)
                }
                rawstack_bpf::Rate::Period(_) => None,
            },
            _ => None,
        };
        self.sources.iter().map(rate).sum()
    }

    fn add(&mut self, spec: &EventSpec, rate: Rate) -> Result<()> {
        match &spec.kind {
            EventKind::Counter(name) => {
                self.add_counter(counter::find(name, rate, &pmu::Pmus::default())?);
                Ok(())
            }
            EventKind::Tracepoint { system, name } => {
                let every = Every::of(rate)?;
                let found = tracepoint::find(system, name, every)?;
                self.notes.extend(found.note);
                self.add_hits(&spec.name, every, vec![found.origin]);
                Ok(())
            }
            EventKind::Uprobe { .. } | EventKind::Usdt { .. } | EventKind::Kprobe(_) => {
                let every = Every::of(rate)?;
                let found = probe::find(&spec.name, &spec.kind, every)?;
                self.notes.extend(found.note);
                let origins = found.probes.into_iter().map(Origin::Probe);
                self.add_hits(&spec.name, every, origins.collect());
                Ok(())
            }
            EventKind::OffCpu { min } => self.add_off_cpu(&spec.name, *min),
        }
    }

    /// What several events fall back to runs once; one of that name that was asked for comes first.
    fn add_counter(&mut self, found: counter::Found) {
        let row = EventRow {
            name: found.name,
            unit: if found.counter.is_clock {
                "ns"
            } else {
                "events"
            }
            .to_owned(),
            period: match found.counter.rate {
                bpf::Rate::Period(period) => period,
                bpf::Rate::Frequency(_) => 0,
            },
            frequency: found.frequency,
        };
        let origin = Origin::Counter(found.counter);
        let is_replacement = found.note.is_some();
        self.notes.extend(found.note);
        let Some(number) = self.rows.iter().position(|other| other.name == row.name) else {
            return self.push(row, vec![origin]);
        };
        if !is_replacement {
            let of_row = self.sources.iter_mut();
            of_row
                .filter(|source| source.number == number)
                .for_each(|source| source.origin = origin.clone());
            self.rows[number] = row;
        }
    }

    fn add_hits(&mut self, name: &str, every: Every, origins: Vec<Origin>) {
        let row = EventRow {
            name: name.to_owned(),
            unit: "events".to_owned(),
            period: if every.0 > 1 { u64::from(every.0) } else { 0 },
            frequency: 0,
        };
        self.push(row, origins);
    }

    fn add_off_cpu(&mut self, name: &str, min: Duration) -> Result<()> {
        if self.off_cpu.is_some() {
            return Err(Error::Event {
                event: name.to_owned(),
                why: "time blocked is recorded once".to_owned(),
                cure: "give off-cpu once, with the shorter time",
            });
        }
        self.off_cpu = Some(OffCpu {
            number: u32::try_from(self.rows.len()).unwrap_or(u32::MAX),
            min_ns: u64::try_from(min.as_nanos()).unwrap_or(u64::MAX),
        });
        let row = EventRow {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            ..EventRow::default()
        };
        self.push(row, Vec::new());
        Ok(())
    }

    fn push(&mut self, row: EventRow, origins: Vec<Origin>) {
        let number = self.rows.len();
        let source = |origin| Source {
            name: row.name.clone(),
            number,
            origin,
        };
        self.sources.extend(origins.into_iter().map(source));
        self.rows.push(row);
    }
}

/// Which hits become samples: each so manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) u32);

impl Every {
    fn of(rate: Rate) -> Result<Self> {
        match rate {
            Rate::Frequency(_) => Ok(Self(1)),
            Rate::Period(period) => u32::try_from(period).map(Self).map_err(|_| Error::Option {
                option: "--period",
                why: format!("{period} is too many hits"),
                cure: "give 4294967295 or less",
            }),
        }
    }
}

/// An event and how often it is sampled, for people.
pub(crate) fn rate_text(row: &EventRow) -> String {
    let name = &row.name;
    match (row.frequency, row.period) {
        (0, 0 | 1) => format!("{name} each time"),
        (0, period) if row.unit == "ns" => format!("{name} every {period} ns"),
        (0, period) => format!("{name} one in {period}"),
        (hz, _) => format!("{name} at {hz} Hz"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two replacements and a clock that was asked for are one event: as it was asked for, in any order.
    #[test]
    fn one_clock() {
        let clock = |period, note: Option<&str>| counter::Found {
            name: "cpu-clock".to_owned(),
            counter: bpf::Counter::cpu_clock(period),
            frequency: 0,
            note: note.map(str::to_owned),
        };
        let (cycles, instructions) = (clock(5, Some("cycles")), clock(5, Some("instructions")));
        let asked = clock(7, None);
        for order in [
            [&cycles, &instructions, &asked],
            [&asked, &cycles, &instructions],
        ] {
            let mut events = Events::default();
            order
                .into_iter()
                .for_each(|found| events.add_counter(found.clone()));
            assert_eq!(events.notes, ["cycles", "instructions"]);
            let periods: Vec<u64> = events.rows.iter().map(|row| row.period).collect();
            assert_eq!(periods, [7]);
            let origin = Origin::Counter(bpf::Counter::cpu_clock(7));
            assert!(events.sources.len() == 1 && events.sources[0].origin == origin);
        }
    }

    /// Check that a rate is told as it was asked for.
    #[test]
    fn rates() {
        let text = |unit: &str, period, frequency| {
            let (name, unit) = ("e".to_owned(), unit.to_owned());
            rate_text(&EventRow {
                name,
                unit,
                period,
                frequency,
            })
        };
        assert_eq!(text("ns", 1_000_000, 1000), "e at 1000 Hz");
        assert_eq!(text("ns", 1_000_000, 0), "e every 1000000 ns");
        assert_eq!(text("events", 0, 0), "e each time");
        assert_eq!(text("events", 1, 0), "e each time");
        assert_eq!(text("events", 7, 0), "e one in 7");
    }
}
