//! One recording of a dataset: its samples as they come, and at its end what else there is to say of it.

use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use rawstack_format::record::Event;

use super::columns::{Column, TableWriter};
use super::context::{Context, SampleRow, StackRow, SymbolRow, ThreadTexts, text};
use super::date::date;
use super::frames::Frames;
use super::ids::Id;
use super::tables::{self, RecordingRow, RunRow};
use super::{Options, Table};
use crate::error::{Error, Result};
use crate::export::exporter::{ExportSample, Source};
use crate::profile::{Summary, ThreadFacts, ThreadId};
use crate::staged::Staged;

/// Samples of one row group.
const SAMPLES: usize = 1 << 20;
/// Rows of other tables' row groups.
const ROWS: usize = 1 << 16;
/// What stands for a service that is not known. Hive has a word for null, but pyarrow reads no table with that alone.
const NO_SERVICE: &str = "unknown";
/// Longest name of a partition, in bytes.
const MAX_NAME: usize = 200;

/// A recording that is being written.
pub(super) struct Part {
    /// Number of its archive.
    pub(super) archive: u32,
    places: Places,
    context: Context,
    frames: Frames,
    of_thread: HashMap<ThreadId, u32>,
    of_event: HashMap<u32, u32>,
    samples: Output<SampleRow>,
    stacks: Output<StackRow>,
    done: Vec<Staged>,
}

/// Rows on their way into a table that is written, and of any other none.
struct Output<R> {
    writer: Option<(TableWriter<R>, Staged)>,
    rows: Vec<R>,
    /// Called with the rows of each row group.
    order: fn(&mut [R]),
}

impl<R> Output<R> {
    fn flush(&mut self, context: &Context) -> Result<()> {
        if let Some((writer, _)) = &mut self.writer {
            (self.order)(&mut self.rows);
            writer.write(context, &self.rows)?;
        }
        self.rows.clear();
        Ok(())
    }

    fn push(&mut self, row: R, context: &Context, most: usize) -> Result<()> {
        if self.writer.is_some() {
            self.rows.push(row);
            if self.rows.len() >= most {
                self.flush(context)?;
            }
        }
        Ok(())
    }

    /// The file, whole.
    fn close(&mut self, context: &Context) -> Result<Option<Staged>> {
        self.flush(context)?;
        let Some((writer, staged)) = self.writer.take() else {
            return Ok(None);
        };
        writer.close()?;
        Ok(Some(staged))
    }
}

/// Where the tables of a recording are.
struct Places {
    options: Options,
    /// Name of its files.
    file: String,
    date: String,
    service: String,
}

impl Places {
    fn of(options: &Options, recording: &Id, archive: &Summary) -> Self {
        let name: String = recording.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            options: options.clone(),
            file: format!("{name}.parquet"),
            date: format!("date={}", date(tables::start_wall_ns(archive))),
            service: format!("service={}", partition(service(options, archive))),
        }
    }

    fn folder(&self, table: Table) -> PathBuf {
        let folder = self.options.folder.join(table.name());
        match table {
            Table::Recordings | Table::Events | Table::Runs | Table::Modules => folder,
            Table::Samples => folder.join(&self.date).join(&self.service),
            Table::Stacks | Table::Frames | Table::Symbols => folder.join(&self.date),
        }
    }

    /// Begin the file of `table`, where it is to be written.
    fn open<R>(&self, table: Table, columns: fn() -> Vec<Column<R>>) -> Result<Output<R>> {
        let mut writer = None;
        if self.options.tables.contains(&table) {
            let folder = self.folder(table);
            let error = |source| Error::Dataset {
                path: folder.clone(),
                source,
            };
            fs::create_dir_all(&folder).map_err(error)?;
            let staged = Staged::create(&folder.join(&self.file)).map_err(error)?;
            let file = staged.file().try_clone().map_err(error)?;
            writer = Some((TableWriter::new(table.name(), columns(), file)?, staged));
        }
        Ok(Output {
            writer,
            rows: Vec::new(),
            order: |_| {},
        })
    }

    /// Remove the samples that the recording has as those of another service.
    fn remove_other_service(&self) -> io::Result<()> {
        let own = self.folder(Table::Samples);
        for folder in fs::read_dir(own.parent().unwrap_or(Path::new(".")))? {
            let folder = folder?.path();
            let file = folder.join(&self.file);
            if folder != own && file.is_file() {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }
}

/// The service that a recording is of.
fn service<'s>(options: &'s Options, archive: &'s Summary) -> Option<&'s str> {
    let labels = archive
        .recording
        .iter()
        .flat_map(|recording| &recording.labels);
    let mut labels = labels.filter(|(key, _)| key == "service");
    let label = || labels.next().map(|(_, value)| value.as_str());
    options
        .service
        .as_deref()
        .or_else(label)
        .filter(|service| !service.is_empty())
}

/// A value as Hive writes it in the name of a folder: what could be more than a name stands as its code.
fn partition(value: Option<&str>) -> String {
    let Some(value) = value else {
        return NO_SERVICE.to_owned();
    };
    let mut name = String::new();
    for byte in value.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_plain = is_plain || (byte == b'.' && !name.is_empty());
        let part = if is_plain {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        };
        if name.len() + part.len() > MAX_NAME {
            break;
        }
        name.push_str(&part);
    }
    name
}

impl Part {
    /// Begin the recording of archive number `archive`.
    pub(super) fn begin(
        options: &Options,
        recording: Id,
        archive: u32,
        facts: &Summary,
    ) -> Result<Self> {
        let places = Places::of(options, &recording, facts);
        Ok(Self {
            archive,
            context: Context::of(&recording),
            frames: Frames::of(recording),
            of_thread: HashMap::default(),
            of_event: HashMap::default(),
            samples: Output {
                order: <[SampleRow]>::sort_unstable,
                ..places.open(Table::Samples, tables::samples)?
            },
            stacks: places.open(Table::Stacks, tables::stacks)?,
            done: Vec::new(),
            places,
        })
    }

    /// Add a sample.
    pub(super) fn add(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        facts: &Summary,
    ) -> Result<()> {
        let row = sample.row.copied().unwrap_or_default();
        let (stack, new) = self.frames.stack(source.profile, sample, &mut self.context);
        if let Some(new) = new {
            self.stacks.push(new, &self.context, ROWS)?;
        }
        let row = SampleRow {
            event: self.event(source, sample),
            time_ns: tables::wall_ns(facts, row.time_ns),
            cpu: row.cpu,
            id: row.id.0,
            thread: self.thread(source, sample),
            run: row.run,
            state: row.state as u8,
            stack,
            weight: sample.weight,
        };
        self.samples.push(row, &self.context, SAMPLES)
    }

    fn thread(&mut self, source: &Source<'_>, sample: &ExportSample<'_>) -> u32 {
        let threads = &mut self.context.threads;
        let next = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        match self.of_thread.entry(sample.thread) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                let unknown = ThreadFacts::default();
                let facts = source.thread(sample).unwrap_or(&unknown);
                threads.push(ThreadTexts {
                    pid: facts.pid,
                    tid: facts.tid,
                    comm: text(&facts.comm),
                    process: text(&facts.process_comm),
                    cgroup: text(&facts.cgroup),
                });
                *free.insert(next)
            }
        }
    }

    fn event(&mut self, source: &Source<'_>, sample: &ExportSample<'_>) -> u32 {
        let events = &mut self.context.events;
        let next = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let event = *self.of_event.entry(sample.event).or_insert(next);
        if event == next {
            events.push(text(source.event(sample)));
        }
        event
    }

    /// Write everything else, and put all files into their places.
    pub(super) fn finish(mut self, source: &Source<'_>, facts: &Summary) -> Result<()> {
        for whole in [
            self.samples.close(&self.context)?,
            self.stacks.close(&self.context)?,
        ] {
            self.done.extend(whole);
        }
        self.write_frames(source)?;
        self.write_symbols(source)?;
        self.write_facts(facts)?;
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Dataset { path, source }
        };
        for staged in self.done {
            let path = staged.target().to_owned();
            staged.keep_if_new().map_err(error(&path))?;
        }
        if self.places.options.tables.contains(&Table::Samples) {
            let removed = self.places.remove_other_service();
            removed.map_err(error(&self.places.options.folder))?;
        }
        Ok(())
    }

    fn write_frames(&mut self, source: &Source<'_>) -> Result<()> {
        let mut out = self.places.open(Table::Frames, tables::frames)?;
        for frame in 0..self.frames.count() {
            let row = self.frames.row(source.profile, frame);
            out.push(row, &self.context, ROWS)?;
        }
        self.done.extend(out.close(&self.context)?);
        let rows = self.frames.modules(source.profile);
        self.write(Table::Modules, tables::modules, rows)
    }

    fn write_symbols(&mut self, source: &Source<'_>) -> Result<()> {
        let profile = source.profile;
        if profile.is_raw() || !self.places.options.tables.contains(&Table::Symbols) {
            return Ok(());
        }
        let mut out = self.places.open(Table::Symbols, tables::symbols)?;
        self.frames.add_twins(profile, &mut self.context);
        let mut rows: Vec<SymbolRow> = Vec::new();
        for frame in 0..self.frames.count() {
            self.frames
                .symbols(profile, frame, &self.context, &mut rows);
            for row in rows.drain(..) {
                out.push(row, &self.context, ROWS)?;
            }
        }
        self.done.extend(out.close(&self.context)?);
        Ok(())
    }

    fn write_facts(&mut self, facts: &Summary) -> Result<()> {
        let events: Vec<Event> = facts
            .recording
            .iter()
            .flat_map(|recording| recording.events.clone())
            .collect();
        self.write(Table::Events, tables::events, events)?;
        let runs = facts.runs.iter().map(|run| RunRow {
            run: run.clone(),
            start_ns: tables::wall_ns(facts, run.start_ns),
            end_ns: (run.end_ns != 0).then(|| tables::wall_ns(facts, run.end_ns)),
        });
        self.write(Table::Runs, tables::runs, runs.collect())?;
        let service = service(&self.places.options, facts).map(str::to_owned);
        let row = RecordingRow {
            archive: facts,
            service,
        };
        self.write(Table::Recordings, tables::recordings, vec![row])
    }

    fn write<R>(
        &mut self,
        table: Table,
        columns: fn() -> Vec<Column<R>>,
        rows: Vec<R>,
    ) -> Result<()> {
        let mut out = self.places.open(table, columns)?;
        out.rows = rows;
        self.done.extend(out.close(&self.context)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no name of a service leads out of its folder, or is longer than a name may be.
    #[test]
    fn names_of_partitions() {
        assert_eq!(partition(Some("web-1.eu")), "web-1.eu");
        assert_eq!(partition(Some("../a b/ü=")), "%2E.%2Fa%20b%2F%C3%BC%3D");
        assert_eq!(partition(None), NO_SERVICE);
        assert!(partition(Some(&"/".repeat(1000))).len() <= MAX_NAME);
    }
}
