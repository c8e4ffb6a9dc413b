//! A dataset of Parquet files: recordings, events, runs, modules, samples, stacks, frames and, apart, symbols.
//!
//! Each recording has its own file in each table, so that one more changes none that is there, and the same again
//! replaces its own; a file with the same bytes stays as it is. IDs are made of what they stand for. Names are in
//! `symbols` alone: to resolve again, nothing else is written. Holds what is distinct in one recording, and a row group
//! of its samples.

mod columns;
mod context;
mod date;
mod frames;
mod ids;
mod part;
mod tables;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use foldhash::HashSet;
use part::Part;

use super::exporter::{ExportSample, Exporter, Source};
use crate::error::{Error, Result};

/// Tables of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// What a recording says of itself.
    Recordings,
    /// What was sampled.
    Events,
    /// Repetitions of the command.
    Runs,
    /// Files with code.
    Modules,
    /// Samples.
    Samples,
    /// Distinct stacks.
    Stacks,
    /// Distinct code addresses.
    Frames,
    /// Their names.
    Symbols,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Recordings,
        Self::Events,
        Self::Runs,
        Self::Modules,
        Self::Samples,
        Self::Stacks,
        Self::Frames,
        Self::Symbols,
    ];

    /// Name of the table and of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recordings => "recordings",
            Self::Events => "events",
            Self::Runs => "runs",
            Self::Modules => "modules",
            Self::Samples => "samples",
            Self::Stacks => "stacks",
            Self::Frames => "frames",
            Self::Symbols => "symbols",
        }
    }
}

/// What is written where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the dataset; made where there is none.
    pub folder: PathBuf,
    /// Tables to write.
    pub tables: Vec<Table>,
    /// The service that the recordings are of; else what their own label says.
    pub service: Option<String>,
}

/// Writes a dataset. Samples have to come one by one, those of one archive together.
pub struct Dataset {
    options: Options,
    /// ID of each archive's recording.
    recordings: Vec<ids::Id>,
    current: Option<Part>,
    begun: HashSet<u32>,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Dataset {
    /// A writer of the tables that are asked for.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            recordings: Vec::new(),
            current: None,
            begun: HashSet::default(),
        }
    }

    /// Finish what was begun and begin the recording of archive number `archive`, if that is another.
    fn turn_to(&mut self, source: &Source<'_>, archive: u32) -> Result<()> {
        if self
            .current
            .as_ref()
            .is_some_and(|part| part.archive == archive)
        {
            return Ok(());
        }
        self.finish_current(source)?;
        let index = archive as usize;
        let facts = source.profile.archives.get(index);
        let (Some(&id), Some(facts)) = (self.recordings.get(index), facts) else {
            return Err(Error::Apart);
        };
        if !self.begun.insert(archive) {
            return Err(Error::Apart);
        }
        self.current = Some(Part::begin(&self.options, id, archive, facts)?);
        Ok(())
    }

    fn finish_current(&mut self, source: &Source<'_>) -> Result<()> {
        let Some(part) = self.current.take() else {
            return Ok(());
        };
        match source.profile.archives.get(part.archive as usize) {
            Some(facts) => part.finish(source, facts),
            None => Err(Error::Apart),
        }
    }
}

impl Exporter for Dataset {
    fn start(&mut self, source: &Source<'_>, _: &mut dyn Write) -> Result<()> {
        let archives = source.profile.archives.iter();
        self.recordings = archives.map(ids::of_recording).collect();
        let mut seen = HashSet::default();
        if !self.recordings.iter().all(|id| seen.insert(*id)) {
            return Err(Error::SameRecording);
        }
        Ok(())
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        _: &mut dyn Write,
    ) -> Result<()> {
        let archive = source.thread(sample).map_or(0, |thread| thread.archive);
        self.turn_to(source, archive)?;
        let facts = source.profile.archives.get(archive as usize);
        match (&mut self.current, facts) {
            (Some(part), Some(facts)) => part.add(source, sample, facts),
            _ => Err(Error::Apart),
        }
    }

    fn finish(&mut self, source: &Source<'_>, _: &mut dyn Write) -> Result<()> {
        self.finish_current(source)?;
        // A recording without a selected sample is there, too.
        for archive in (0u32..).take(self.recordings.len()) {
            if !self.begun.contains(&archive) {
                self.turn_to(source, archive)?;
                self.finish_current(source)?;
            }
        }
        Ok(())
    }
}
