//! What the page knows: frames, the tree of stacks in preorder, and cells of time.
//!
//! Indices are dense and sorted by name, so the same profile gives the same bytes, and the page sorts no names.

use std::collections::BTreeMap;
use std::io::Write;

use foldhash::{HashMap, HashSet};
use serde::Serialize;

use super::pack::Packer;
use crate::error::Result;
use crate::profile::rows::EventFacts;
use crate::profile::timeline::Cell;
use crate::profile::{Summary, ThreadFacts, Timeline};
use crate::report::NameFilter;
use crate::symbolized::{Stack, SymbolizedFrame, SymbolizedProfile};
use crate::text::clean;

/// Version of the layout that `data.js` reads.
const LAYOUT: u32 = 1;
/// Bits of a frame.
const KERNEL: u64 = 1;
const INLINED: u64 = 2;
const UNRESOLVED: u64 = 4;
const MARKER: u64 = 8;

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

/// A frame as boxes tell them apart: functions, not addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PageFrame<'p> {
    name: &'p str,
    module: &'p str,
    flags: u64,
}

/// Node of the tree: parent, frame.
type Node = (u32, u32);

/// Everything in the page.
pub(super) struct PageData<'p> {
    profile: &'p SymbolizedProfile,
    title: &'p str,
    frames: Vec<PageFrame<'p>>,
    /// Source file of each function, where all of its frames agree.
    files: Vec<Option<&'p str>>,
    /// Depth and frame of each node, in preorder; the first is the root, without a frame.
    nodes: Vec<Node>,
    threads: Vec<ThreadFacts>,
    cells: Vec<Cell>,
    slot_ns: u64,
}

impl<'p> PageData<'p> {
    pub(super) fn of(
        profile: &'p SymbolizedProfile,
        timeline: &Timeline,
        names: &NameFilter,
        title: &'p str,
    ) -> Self {
        let mut data = Self {
            profile,
            title,
            frames: Vec::new(),
            files: Vec::new(),
            nodes: Vec::new(),
            threads: Vec::new(),
            cells: Vec::new(),
            slot_ns: timeline.span_ns(),
        };
        let of_frame = data.number_frames();
        let leaves = data.grow(timeline, names, &of_frame);
        data.take_cells(timeline, &leaves);
        data
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.weight == 0)
    }

    /// The page's number of each frame of the profile.
    fn number_frames(&mut self) -> Vec<u32> {
        let profile = self.profile;
        let shown: Vec<PageFrame<'p>> = profile
            .frames()
            .iter()
            .map(|frame| page_frame(profile, frame))
            .collect();
        let mut distinct: BTreeMap<PageFrame<'p>, u32> =
            shown.iter().map(|frame| (*frame, 0)).collect();
        for (number, (frame, slot)) in (0u32..).zip(&mut distinct) {
            *slot = number;
            self.frames.push(*frame);
        }
        let mut files: HashMap<(&str, &str), Option<&'p str>> = HashMap::default();
        for (frame, shown) in profile.frames().iter().zip(&shown) {
            let file = frame.place.file.get().map(|file| profile.text(file));
            let held = files.entry((shown.name, shown.module)).or_insert(file);
            if *held != file {
                *held = None;
            }
        }
        let file =
            |frame: &PageFrame<'p>| files.get(&(frame.name, frame.module)).copied().flatten();
        self.files = self.frames.iter().map(file).collect();
        shown
            .iter()
            .map(|frame| distinct.get(frame).copied().unwrap_or_default())
            .collect()
    }

    /// Grow the tree; gives the node of each selected stack.
    fn grow(
        &mut self,
        timeline: &Timeline,
        names: &NameFilter,
        of_frame: &[u32],
    ) -> Vec<Option<u32>> {
        let events: HashSet<u32> = self.profile.rows.iter().map(|row| row.event).collect();
        let selected = names.of(self.profile);
        let mut grown: Vec<Node> = vec![(u32::MAX, u32::MAX)];
        let mut index: HashMap<Node, u32> = HashMap::default();
        let mut stack = Stack::new();
        let mut leaves = Vec::with_capacity(timeline.stacks.len());
        for row in &timeline.stacks {
            if !events.contains(&row.event) || !selected.stack(row, &mut stack) {
                leaves.push(None);
                continue;
            }
            let mut at = 0;
            for &frame in stack.iter().rev() {
                let node = (
                    at,
                    of_frame.get(frame as usize).copied().unwrap_or_default(),
                );
                let next = u32::try_from(grown.len()).unwrap_or(u32::MAX);
                at = *index.entry(node).or_insert(next);
                if at == next {
                    grown.push(node);
                }
            }
            leaves.push(Some(at));
        }
        let place = self.order(&grown);
        let placed = |leaf: u32| place.get(leaf as usize).copied();
        leaves
            .into_iter()
            .map(|leaf| leaf.and_then(placed))
            .collect()
    }

    /// Put the tree into preorder, children by name; gives the new place of each node.
    fn order(&mut self, grown: &[Node]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..).take(grown.len()).collect();
        // Children of one parent lie together, the last name first: what is pushed last is visited first.
        let key = |&node: &u32| {
            grown
                .get(node as usize)
                .map(|&(parent, frame)| (parent, !frame))
        };
        order.sort_by_key(key);
        let children = |parent: u32| {
            let of = |node: &u32| grown.get(*node as usize).map_or(0, |node| node.0);
            let from = order.partition_point(|node| of(node) < parent);
            let until = order.partition_point(|node| of(node) <= parent);
            order.get(from..until).unwrap_or_default()
        };
        let mut place = vec![0; grown.len()];
        let mut waiting = vec![(0u32, 0u32)];
        while let Some((node, depth)) = waiting.pop() {
            if let Some(slot) = place.get_mut(node as usize) {
                *slot = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            }
            let frame = grown.get(node as usize).map_or(0, |node| node.1);
            self.nodes.push((depth, frame));
            waiting.extend(children(node).iter().map(|&child| (child, depth + 1)));
        }
        place
    }

    /// The cells of the selected stacks, by time: node instead of stack, the weight that is shown, dense threads.
    fn take_cells(&mut self, timeline: &Timeline, leaves: &[Option<u32>]) {
        let profile = self.profile;
        let unit = profile.unit();
        let by_event = |event: &EventFacts| event.unit == unit;
        let own_unit: Vec<bool> = profile.events.iter().map(by_event).collect();
        let mut threads: BTreeMap<&ThreadFacts, u32> = BTreeMap::new();
        let mut taken = Vec::new();
        for cell in &timeline.cells {
            let stack = cell.stack as usize;
            let (Some(&Some(node)), Some(row)) = (leaves.get(stack), timeline.stacks.get(stack))
            else {
                continue;
            };
            let Some(thread) = profile.thread(cell.thread) else {
                continue;
            };
            threads.insert(thread, 0);
            let weighs = own_unit.get(row.event as usize).copied().unwrap_or(false);
            let weight = if weighs {
                cell.weight
            } else {
                u64::from(cell.samples)
            };
            taken.push(Cell {
                stack: node,
                weight,
                ..*cell
            });
        }
        for (number, (thread, slot)) in (0u32..).zip(&mut threads) {
            *slot = number;
            self.threads.push((*thread).clone());
        }
        let number = |cell: &Cell| {
            profile
                .thread(cell.thread)
                .and_then(|thread| threads.get(thread))
                .copied()
        };
        for cell in &mut taken {
            cell.thread.0 = number(cell).unwrap_or_default();
        }
        taken.sort_unstable();
        self.cells = taken;
    }

    /// Write everything as text that markup leaves alone.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        let mut strings: BTreeMap<&str, u64> = BTreeMap::new();
        let of_frames = self
            .frames
            .iter()
            .flat_map(|frame| [frame.name, frame.module]);
        for text in of_frames.chain(self.files.iter().copied().flatten()) {
            strings.insert(text, 0);
        }
        (0u64..)
            .zip(strings.values_mut())
            .for_each(|(number, slot)| *slot = number);
        let number = |text: &str| strings.get(text).copied().unwrap_or_default();
        let head = self.head(strings.keys().copied().collect());
        let mut packer = Packer::new(out);
        packer.bytes(&serde_json::to_vec(&head)?)?;
        packer.column(self.frames.iter().map(|frame| number(frame.name)))?;
        packer.column(self.frames.iter().map(|frame| number(frame.module)))?;
        packer.column(
            self.files
                .iter()
                .map(|file| file.map_or(0, |file| number(file) + 1)),
        )?;
        packer.column(self.frames.iter().map(|frame| frame.flags))?;
        packer.column(self.nodes.iter().map(|node| u64::from(node.0)))?;
        packer.column(self.nodes.iter().skip(1).map(|node| u64::from(node.1)))?;
        let mut before = 0;
        packer.column(self.cells.iter().map(|cell| {
            let step = cell.slot - before;
            before = cell.slot;
            u64::from(step)
        }))?;
        packer.column(self.cells.iter().map(|cell| u64::from(cell.thread.0)))?;
        packer.column(self.cells.iter().map(|cell| u64::from(cell.cpu)))?;
        packer.column(self.cells.iter().map(|cell| u64::from(cell.stack)))?;
        packer.column(self.cells.iter().map(|cell| u64::from(cell.samples)))?;
        packer.column(self.cells.iter().map(|cell| cell.weight))?;
        packer.finish()?;
        Ok(())
    }

    fn head<'s>(&'s self, strings: Vec<&'s str>) -> Head<'s> {
        let profile = self.profile;
        let mut events: Vec<u32> = profile.rows.iter().map(|row| row.event).collect();
        events.sort_unstable();
        events.dedup();
        let names = events
            .iter()
            .filter_map(|&event| profile.events.get(event as usize));
        let names: Vec<&str> = names.map(|event| event.name.as_str()).collect();
        let threads = self.threads.iter().map(|thread| ThreadRow {
            archive: thread.archive,
            pid: thread.pid,
            tid: thread.tid,
            comm: &thread.comm,
            process: &thread.process_comm,
        });
        Head {
            layout: LAYOUT,
            title: self.title,
            unit: profile.unit(),
            event: names.join(", "),
            archives: archives(profile),
            slot_ns: self.slot_ns,
            strings,
            threads: threads.collect(),
            frames: self.frames.len(),
            nodes: self.nodes.len(),
            cells: self.cells.len(),
        }
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

fn page_frame<'p>(profile: &'p SymbolizedProfile, frame: &SymbolizedFrame) -> PageFrame<'p> {
    let module = profile.text(frame.module);
    let bit = |is: bool, bit: u64| if is { bit } else { 0 };
    PageFrame {
        name: profile.text(frame.name),
        module,
        flags: bit(frame.kernel, KERNEL)
            | bit(frame.inlined, INLINED)
            | bit(frame.reason.is_some(), UNRESOLVED)
            | bit(module == "[rawstack]", MARKER),
    }
}
