//! Recording, runs and end.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter, Blobs};
use super::column::{pack, pack_deltas, unpack, unpack_as, unpack_deltas};
use super::{checked_rows, row_count};
use crate::error::Invalid;
use crate::record::{End, Event, Mode, Recording, Run};

/// Recording chunk. Blobs: reason of the mode, writer, name and unit of each event, then names and values of options,
/// host facts and labels.
#[derive(Archive, Serialize)]
pub(crate) struct RecordingRoot {
    pub(crate) start_ns: u64,
    pub(crate) start_wall_ns: u64,
    pub(crate) epoch: u32,
    pub(crate) mode: u32,
    pub(crate) events: u32,
    pub(crate) options: u32,
    pub(crate) host: u32,
    pub(crate) labels: u32,
    /// 0.
    pub(crate) unused: u32,
    pub(crate) period: Vec<u8>,
    pub(crate) frequency: Vec<u8>,
    pub(crate) blobs: Blobs,
}

/// Runs chunk.
#[derive(Archive, Serialize)]
pub(crate) struct RunsRoot {
    pub(crate) rows: u32,
    pub(crate) run: Vec<u8>,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// Bits of the `f64`.
    pub(crate) work: Vec<u8>,
    pub(crate) exit: Vec<u8>,
}

/// End chunk.
#[derive(Archive, Serialize)]
pub(crate) struct EndRoot {
    pub(crate) end_ns: u64,
    pub(crate) end_wall_ns: u64,
    pub(crate) reserved: u64,
    pub(crate) states: [u64; 8],
    pub(crate) exit: i32,
    /// 0.
    pub(crate) unused: u32,
}

pub(crate) fn encode(recording: &Recording) -> Result<RecordingRoot, Invalid> {
    let mut blobs = BlobWriter::default();
    blobs.push(recording.mode_reason.as_bytes());
    blobs.push(recording.writer.as_bytes());
    for event in &recording.events {
        blobs.push(event.name.as_bytes());
        blobs.push(event.unit.as_bytes());
    }
    for (name, value) in [&recording.options, &recording.host, &recording.labels]
        .into_iter()
        .flatten()
    {
        blobs.push(name.as_bytes());
        blobs.push(value.as_bytes());
    }
    Ok(RecordingRoot {
        start_ns: recording.start_ns,
        start_wall_ns: recording.start_wall_ns,
        epoch: recording.epoch,
        mode: recording.mode as u32,
        events: row_count(&recording.events)?,
        options: row_count(&recording.options)?,
        host: row_count(&recording.host)?,
        labels: row_count(&recording.labels)?,
        unused: 0,
        period: pack(recording.events.iter().map(|e| e.period)),
        frequency: pack(recording.events.iter().map(|e| e.frequency)),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode(a: &ArchivedRecordingRoot) -> Result<Recording, Invalid> {
    let mut blobs = BlobReader::new(&a.blobs)?;
    let (mode_reason, writer) = (blobs.string()?, blobs.string()?);
    let rows = checked_rows(a.events.to_native())?;
    let periods = unpack(&a.period, rows)?;
    let frequencies = unpack(&a.frequency, rows)?;
    let events: Result<_, Invalid> = periods
        .into_iter()
        .zip(frequencies)
        .map(|(period, frequency)| {
            Ok(Event {
                name: blobs.string()?,
                unit: blobs.string()?,
                period,
                frequency,
            })
        })
        .collect();
    let recording = Recording {
        epoch: a.epoch.to_native(),
        mode: mode(a.mode.to_native())?,
        mode_reason,
        start_ns: a.start_ns.to_native(),
        start_wall_ns: a.start_wall_ns.to_native(),
        writer,
        events: events?,
        options: pairs(&mut blobs, a.options.to_native())?,
        host: pairs(&mut blobs, a.host.to_native())?,
        labels: pairs(&mut blobs, a.labels.to_native())?,
    };
    blobs.finish()?;
    Ok(recording)
}

fn pairs(blobs: &mut BlobReader<'_>, rows: u32) -> Result<Vec<(String, String)>, Invalid> {
    (0..checked_rows(rows)?)
        .map(|_| Ok((blobs.string()?, blobs.string()?)))
        .collect()
}

fn mode(number: u32) -> Result<Mode, Invalid> {
    Ok(match number {
        0 => Mode::Deferred,
        1 => Mode::Immediate,
        2 => Mode::Off,
        _ => return Err(Invalid::Value),
    })
}

pub(crate) fn encode_runs(runs: &[Run]) -> Result<RunsRoot, Invalid> {
    Ok(RunsRoot {
        rows: row_count(runs)?,
        run: pack(runs.iter().map(|r| r.run)),
        start: pack_deltas(runs.iter().map(|r| r.start_ns)),
        end: pack_deltas(runs.iter().map(|r| r.end_ns)),
        work: pack(runs.iter().map(|r| r.work.to_bits())),
        exit: pack(runs.iter().map(|r| r.exit.cast_unsigned())),
    })
}

pub(crate) fn decode_runs(a: &ArchivedRunsRoot) -> Result<Vec<Run>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let runs: Vec<u32> = unpack_as(&a.run, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let ends = unpack_deltas(&a.end, rows)?;
    let works = unpack(&a.work, rows)?;
    let exits: Vec<u32> = unpack_as(&a.exit, rows)?;
    let run = |row: usize| Run {
        run: runs[row],
        start_ns: starts[row],
        end_ns: ends[row],
        work: f64::from_bits(works[row]),
        exit: exits[row].cast_signed(),
    };
    Ok((0..rows).map(run).collect())
}

pub(crate) fn encode_end(end: &End) -> EndRoot {
    EndRoot {
        end_ns: end.end_ns,
        end_wall_ns: end.end_wall_ns,
        reserved: end.reserved,
        states: end.states,
        exit: end.exit,
        unused: 0,
    }
}

pub(crate) fn decode_end(a: &ArchivedEndRoot) -> End {
    End {
        end_ns: a.end_ns.to_native(),
        end_wall_ns: a.end_wall_ns.to_native(),
        reserved: a.reserved.to_native(),
        states: a.states.map(|count| count.to_native()),
        exit: a.exit.to_native(),
    }
}
