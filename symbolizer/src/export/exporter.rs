//! What all exports have in common: samples one after the other, each with its names, in; bytes out.

use std::io::{self, Write};

use rawstack_format::record::{Sample, State};

use super::cut::{Branches, Cut};
use crate::error::Result;
use crate::profile::{NodeId, ThreadFacts, ThreadId};
use crate::report::NameFilter;
use crate::report::names::Selected;
use crate::symbolized::{Located, SymbolizedProfile};

/// Writes one format. Gets the samples in the order of the archive, or added up by stack and thread.
pub trait Exporter {
    /// Called once, before the first sample.
    fn start(&mut self, _source: &Source<'_>, _out: &mut dyn Write) -> Result<()> {
        Ok(())
    }

    /// Called with each sample that is selected.
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()>;

    /// Called once, behind the last sample.
    fn finish(&mut self, _source: &Source<'_>, _out: &mut dyn Write) -> Result<()> {
        Ok(())
    }
}

/// What the samples are of.
#[derive(Clone, Copy, Debug)]
pub struct Source<'p> {
    /// Names, modules, threads, events.
    pub profile: &'p SymbolizedProfile,
    /// Unit of the weights; of samples that are given one by one each has its event's own.
    pub unit: &'p str,
}

/// One sample, or several that have everything in common.
#[derive(Clone, Copy, Debug)]
pub struct ExportSample<'s> {
    /// Thread.
    pub thread: ThreadId,
    /// Event, an index into the profile's.
    pub event: u32,
    /// Weight, in the unit of the source.
    pub weight: u64,
    /// Number of samples.
    pub samples: u64,
    /// Frames, leaf first.
    pub stack: &'s [Located],
    /// The halves that the frames are of.
    pub halves: Halves,
    /// The row as recorded, where samples are given one by one.
    pub row: Option<&'s Sample>,
}

impl<'s> ExportSample<'s> {
    /// Frames by code address, leaf first: a function with what is inlined into it, innermost first.
    pub(super) fn chains(&self) -> impl Iterator<Item = &'s [Located]> {
        self.stack.chunk_by(|a, b| a.level == b.level)
    }
}

/// The halves of a stack and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Halves {
    /// Kernel half.
    pub kernel: NodeId,
    /// User half.
    pub user: NodeId,
    /// State, and whether the kernel half is cut.
    pub end: (State, bool),
}

impl Halves {
    /// Whether frames are missing because the stack is deeper than what is recorded of one.
    pub fn is_truncated(&self) -> bool {
        let (state, kernel_cut) = self.end;
        kernel_cut || state == State::Truncated
    }
}

/// Gives samples to an exporter, those alone that are selected by name.
#[derive(Debug)]
pub struct Feed<'p> {
    source: Source<'p>,
    selected: Selected<'p>,
    stack: Vec<Located>,
}

impl<'p> Feed<'p> {
    /// A feed of `source`'s samples.
    pub fn new(source: Source<'p>, names: &NameFilter) -> Self {
        Self {
            selected: names.of(source.profile),
            source,
            stack: Vec::new(),
        }
    }

    /// Give one sample, its stack being that of its halves.
    pub fn give(
        &mut self,
        exporter: &mut dyn Exporter,
        sample: ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let stack = &mut self.stack;
        stack.clear();
        let Halves { kernel, user, end } = sample.halves;
        self.source
            .profile
            .each_located(kernel, user, end, &mut |frame| stack.push(frame));
        if !self.selected.choose(stack) {
            return Ok(());
        }
        let sample = ExportSample { stack, ..sample };
        exporter.sample(&self.source, &sample, out)
    }
}

/// Give all rows of `profile` to an exporter, from start to finish. Branches below `least_percent` of the total are cut
/// off; their weight stays.
pub fn export_rows(
    profile: &SymbolizedProfile,
    names: &NameFilter,
    least_percent: f64,
    exporter: &mut dyn Exporter,
    out: &mut dyn Write,
) -> Result<()> {
    let source = Source {
        profile,
        unit: profile.unit(),
    };
    if least_percent <= 0.0 {
        return give_rows(source, names, exporter, out);
    }
    let mut branches = Branches::default();
    give_rows(source, names, &mut branches, &mut io::sink())?;
    let mut cut = Cut::new(branches, least_percent, exporter);
    give_rows(source, names, &mut cut, out)
}

fn give_rows(
    source: Source<'_>,
    names: &NameFilter,
    exporter: &mut dyn Exporter,
    out: &mut dyn Write,
) -> Result<()> {
    let profile = source.profile;
    exporter.start(&source, out)?;
    let mut feed = Feed::new(source, names);
    for row in &profile.rows {
        let halves = Halves {
            kernel: row.kernel,
            user: row.user,
            end: (row.state, row.kernel_cut),
        };
        let sample = ExportSample {
            thread: row.thread,
            event: row.event,
            weight: profile.weight(row, source.unit),
            samples: row.samples,
            stack: &[],
            halves,
            row: None,
        };
        feed.give(exporter, sample, out)?;
    }
    exporter.finish(&source, out)
}

impl<'p> Source<'p> {
    /// Name of the sample's event.
    pub(super) fn event(&self, sample: &ExportSample<'_>) -> &'p str {
        let event = self.profile.events.get(sample.event as usize);
        event.map_or("unknown", |event| event.name.as_str())
    }

    /// Facts of the sample's thread.
    pub(super) fn thread(&self, sample: &ExportSample<'_>) -> Option<&'p ThreadFacts> {
        self.profile.thread(sample.thread)
    }

    /// Name of the event that all rows are of, and its period in its unit: 0 where none was set.
    pub(super) fn only_event(&self) -> (&'p str, u64) {
        let first = self.profile.rows.first();
        let event = first.and_then(|row| self.profile.events.get(row.event as usize));
        let Some(event) = event else {
            return ("samples", 0);
        };
        let recordings = self.profile.archives.iter();
        let mut recorded = recordings
            .filter_map(|archive| archive.recording.as_ref())
            .flat_map(|recording| &recording.events)
            .filter(|recorded| recorded.name == event.name);
        let period = recorded.next().map_or(0, |recorded| {
            let by_frequency = 1_000_000_000u64.checked_div(recorded.frequency);
            match by_frequency.filter(|_| recorded.period == 0 && event.unit == "ns") {
                Some(period) => period,
                None => recorded.period,
            }
        });
        (event.name.as_str(), period)
    }

    /// Number of the sample's archive, and nanoseconds since the first archive was started (by the hosts' wall clocks).
    pub(super) fn since_start(&self, sample: &ExportSample<'_>, time_ns: u64) -> (u32, u64) {
        let archive = self.thread(sample).map_or(0, |thread| thread.archive);
        let Some(facts) = self.profile.archives.get(archive as usize) else {
            return (archive, time_ns);
        };
        let wall = facts
            .recording
            .as_ref()
            .map_or(0, |recording| recording.start_wall_ns);
        let later = wall.saturating_sub(self.times().0);
        let since = time_ns.saturating_sub(facts.start_ns());
        (archive, since.saturating_add(later))
    }

    /// Name of the first archive's host, where it is known.
    pub(super) fn host(&self) -> &'p str {
        let first = self.profile.archives.first();
        let recording = first.and_then(|archive| archive.recording.as_ref());
        let mut facts = recording.iter().flat_map(|recording| &recording.host);
        let host = facts.find(|(name, _)| name == "hostname");
        host.map_or("", |(_, value)| value.as_str())
    }

    /// When the first archive was started (wall clock), and for how long all archives were recorded, in nanoseconds.
    pub(super) fn times(&self) -> (u64, u64) {
        let archives = &self.profile.archives;
        let recordings = archives
            .iter()
            .filter_map(|archive| archive.recording.as_ref());
        let start = recordings.map(|recording| recording.start_wall_ns).min();
        let lengths = archives
            .iter()
            .map(|archive| archive.end_ns().saturating_sub(archive.start_ns()));
        (start.unwrap_or(0), lengths.fold(0, u64::saturating_add))
    }
}
