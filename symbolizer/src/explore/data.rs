//! A profile to be looked at from several sides: functions, the tree of stacks in preorder, and cells of time.
//!
//! Indices are dense and sorted by name, so the same profile gives the same numbers, and nobody sorts names again.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};

use crate::profile::rows::EventFacts;
use crate::profile::timeline::Cell;
use crate::profile::{ThreadFacts, Timeline};
use crate::report::NameFilter;
use crate::symbolized::{Stack, SymbolizedFrame, SymbolizedProfile};

/// Bit of a frame that is in the kernel.
pub const KERNEL: u8 = 1;
/// Bit of a frame that is inlined into its caller.
pub const INLINED: u8 = 2;
/// Bit of a frame without a name.
pub const UNRESOLVED: u8 = 4;
/// Bit of a frame that only says how a stack ends.
pub const MARKER: u8 = 8;
/// The root's frame.
pub const NO_FRAME: u32 = u32::MAX;

/// A frame as boxes tell them apart: functions, not addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShownFrame<'p> {
    /// Name of the function, or what stands for it.
    pub name: &'p str,
    /// Path of the module, or what stands for it.
    pub module: &'p str,
    /// [`KERNEL`], [`INLINED`], [`UNRESOLVED`], [`MARKER`].
    pub flags: u8,
}

/// Node of the growing tree: parent, frame.
type Node = (u32, u32);

/// A profile by function, stack, time, thread and CPU.
#[derive(Debug)]
pub struct Explored<'p> {
    /// Where it comes from.
    pub profile: &'p SymbolizedProfile,
    /// Distinct frames, by name, module and flags.
    pub frames: Vec<ShownFrame<'p>>,
    /// Source file of each frame's function, where all frames of the function agree.
    pub files: Vec<Option<&'p str>>,
    /// First and last line of each frame's function that are on a stack; 0 where there is no file, or no line.
    pub lines: Vec<(u32, u32)>,
    /// Depth and frame of each node, in preorder, children by frame; the first is the root, of [`NO_FRAME`].
    pub nodes: Vec<(u32, u32)>,
    /// Threads with samples.
    pub threads: Vec<ThreadFacts>,
    /// Cells by time, then thread, CPU and node: `stack` is a node, `thread` an index into [`threads`](Self::threads),
    /// `weight` is in the profile's unit.
    pub cells: Vec<Cell>,
    /// Length of a cell's span, in nanoseconds.
    pub slot_ns: u64,
}

impl<'p> Explored<'p> {
    /// The selected stacks of `profile`, whose samples `timeline` counts; the events of its rows are those that count.
    pub fn of(profile: &'p SymbolizedProfile, timeline: &Timeline, names: &NameFilter) -> Self {
        let mut data = Self {
            profile,
            frames: Vec::new(),
            files: Vec::new(),
            lines: Vec::new(),
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

    /// Names of the events that count.
    pub fn event_names(&self) -> String {
        let mut events: Vec<u32> = self.profile.rows.iter().map(|row| row.event).collect();
        events.sort_unstable();
        events.dedup();
        let known = events
            .iter()
            .filter_map(|&event| self.profile.events.get(event as usize));
        let names: Vec<&str> = known.map(|event| event.name.as_str()).collect();
        names.join(", ")
    }

    /// Whether nothing is there to be seen.
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.weight == 0)
    }

    /// Our number of each frame of the profile.
    fn number_frames(&mut self) -> Vec<u32> {
        let profile = self.profile;
        let shown: Vec<ShownFrame<'p>> = profile
            .frames()
            .iter()
            .map(|frame| shown_frame(profile, frame))
            .collect();
        let mut distinct: BTreeMap<ShownFrame<'p>, u32> =
            shown.iter().map(|frame| (*frame, 0)).collect();
        for (number, (frame, slot)) in (0u32..).zip(&mut distinct) {
            *slot = number;
            self.frames.push(*frame);
        }
        self.number_places(&shown);
        shown
            .iter()
            .map(|frame| distinct.get(frame).copied().unwrap_or_default())
            .collect()
    }

    /// Files and lines of the functions.
    fn number_places(&mut self, shown: &[ShownFrame<'p>]) {
        let profile = self.profile;
        let mut places: HashMap<(&str, &str), (Option<&'p str>, u32, u32)> = HashMap::default();
        for (frame, shown) in profile.frames().iter().zip(shown) {
            let file = frame.place.file.get().map(|file| profile.text(file));
            let line = frame.place.line;
            let key = (shown.name, shown.module);
            let (held, first, last) = places.entry(key).or_insert((file, line, line));
            if *held != file {
                *held = None;
            }
            if line > 0 {
                *first = if *first == 0 { line } else { line.min(*first) };
                *last = line.max(*last);
            }
        }
        for frame in &self.frames {
            let place = places.get(&(frame.name, frame.module)).copied();
            let (file, first, last) = place.unwrap_or_default();
            self.files.push(file);
            let lines = if file.is_some() {
                (first, last)
            } else {
                (0, 0)
            };
            self.lines.push(lines);
        }
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
}

fn shown_frame<'p>(profile: &'p SymbolizedProfile, frame: &SymbolizedFrame) -> ShownFrame<'p> {
    let module = profile.text(frame.module);
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    ShownFrame {
        name: profile.text(frame.name),
        module,
        flags: bit(frame.kernel, KERNEL)
            | bit(frame.inlined, INLINED)
            | bit(frame.reason.is_some(), UNRESOLVED)
            | bit(module == "[rawstack]", MARKER),
    }
}
