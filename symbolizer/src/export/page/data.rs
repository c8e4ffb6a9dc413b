//! What the page knows, as text that markup leaves alone: columns that `data.js` reads.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::pack::Packer;
use crate::error::Result;
use crate::explore::Explored;
use crate::profile::Summary;
use crate::symbolized::SymbolizedProfile;
use crate::text::clean;

/// Version of the layout that `data.js` reads.
const LAYOUT: u32 = 2;
/// The head of the data, as JSON; columns follow.
#[derive(Serialize)]
struct Head<'p> {
    layout: u32,
    title: &'p str,
    unit: &'p str,
    event: String,
    archives: Vec<ArchiveFacts>,
    slot_ns: u64,
    strings: Vec<&'p str>,
    threads: Vec<ThreadRow<'p>>,
    frames: usize,
    nodes: usize,
    cells: usize,
}

#[derive(Serialize)]
struct ArchiveFacts {
    path: String,
    host: String,
    /// Milliseconds since 1970.
    start_ms: u64,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct ThreadRow<'p> {
    archive: u32,
    pid: u32,
    tid: u32,
    comm: &'p str,
    process: &'p str,
}

/// Write everything as text that markup leaves alone.
pub(super) fn write(data: &Explored<'_>, title: &str, out: &mut dyn Write) -> Result<()> {
    let mut strings: BTreeMap<&str, u64> = BTreeMap::new();
    let of_frames = data
        .frames
        .iter()
        .flat_map(|frame| [frame.name, frame.module]);
    for text in of_frames.chain(data.files.iter().copied().flatten()) {
        strings.insert(text, 0);
    }
    (0u64..)
        .zip(strings.values_mut())
        .for_each(|(number, slot)| *slot = number);
    let number = |text: &str| strings.get(text).copied().unwrap_or_default();
    let head = head(data, title, strings.keys().copied().collect());
    let mut packer = Packer::new(out);
    packer.bytes(&serde_json::to_vec(&head)?)?;
    packer.column(data.frames.iter().map(|frame| number(frame.name)))?;
    packer.column(data.frames.iter().map(|frame| number(frame.module)))?;
    packer.column(
        data.files
            .iter()
            .map(|file| file.map_or(0, |file| number(file) + 1)),
    )?;
    packer.column(data.lines.iter().map(|(first, _)| u64::from(*first)))?;
    packer.column(
        data.lines
            .iter()
            .map(|(first, last)| u64::from(last.saturating_sub(*first))),
    )?;
    packer.column(data.frames.iter().map(|frame| u64::from(frame.flags)))?;
    packer.column(data.nodes.iter().map(|node| u64::from(node.0)))?;
    packer.column(data.nodes.iter().skip(1).map(|node| u64::from(node.1)))?;
    let mut before = 0;
    packer.column(data.cells.iter().map(|cell| {
        let step = cell.slot - before;
        before = cell.slot;
        u64::from(step)
    }))?;
    packer.column(data.cells.iter().map(|cell| u64::from(cell.thread.0)))?;
    packer.column(data.cells.iter().map(|cell| u64::from(cell.cpu)))?;
    packer.column(data.cells.iter().map(|cell| u64::from(cell.stack)))?;
    packer.column(data.cells.iter().map(|cell| u64::from(cell.samples)))?;
    packer.column(data.cells.iter().map(|cell| cell.weight))?;
    packer.finish()?;
    Ok(())
}

fn head<'s>(data: &'s Explored<'_>, title: &'s str, strings: Vec<&'s str>) -> Head<'s> {
    let threads = data.threads.iter().map(|thread| ThreadRow {
        archive: thread.archive,
        pid: thread.pid,
        tid: thread.tid,
        comm: &thread.comm,
        process: &thread.process_comm,
    });
    Head {
        layout: LAYOUT,
        title,
        unit: data.profile.unit(),
        event: data.event_names(),
        archives: archives(data.profile),
        slot_ns: data.slot_ns,
        strings,
        threads: threads.collect(),
        frames: data.frames.len(),
        nodes: data.nodes.len(),
        cells: data.cells.len(),
    }
}

fn archives(profile: &SymbolizedProfile) -> Vec<ArchiveFacts> {
    let of = |archive: &Summary| {
        let recording = archive.recording.as_ref();
        let host = recording.and_then(|recording| {
            let name = recording.host.iter().find(|(key, _)| key == "hostname");
            name.map(|(_, host)| clean(host).into_owned())
        });
        ArchiveFacts {
            path: clean(&archive.path).into_owned(),
            host: host.unwrap_or_default(),
            start_ms: recording.map_or(0, |recording| recording.start_wall_ns / 1_000_000),
            problems: archive.problems(),
        }
    };
    profile.archives.iter().map(of).collect()
}
