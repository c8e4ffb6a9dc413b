//! What is shown of an explored profile: the tree of what is selected, sums of functions, callers and callees.

use std::collections::BTreeSet;
use std::mem;

use foldhash::HashMap;

use super::data::{Explored, NO_FRAME};
use crate::profile::timeline::Cell;

/// Which samples count; an empty part selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Processes, as archive and process ID.
    pub processes: BTreeSet<(u32, u32)>,
    /// Threads, as indices.
    pub threads: BTreeSet<u32>,
    /// CPUs.
    pub cpus: BTreeSet<u32>,
    /// Slots of time, from and up to and without.
    pub slots: Option<(u32, u32)>,
}

impl Selection {
    /// Whether everything is selected.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `cell` counts.
    pub fn has(&self, data: &Explored<'_>, cell: &Cell) -> bool {
        let has_process = || {
            let thread = data.threads.get(cell.thread.0 as usize);
            thread.is_some_and(|thread| self.processes.contains(&(thread.archive, thread.pid)))
        };
        let has_time = |(from, to): (u32, u32)| (from..to).contains(&cell.slot);
        self.slots.is_none_or(has_time)
            && (self.threads.is_empty() || self.threads.contains(&cell.thread.0))
            && (self.cpus.is_empty() || self.cpus.contains(&cell.cpu))
            && (self.processes.is_empty() || has_process())
    }
}

/// A box of a tree in preorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewBox {
    /// Frame, [`NO_FRAME`] for the root.
    pub frame: u32,
    /// Distance from the root.
    pub depth: u32,
    /// Index behind the last descendant.
    pub end: u32,
    /// Weight of what lies to the left.
    pub start: u64,
    /// Weight of the box and all above it.
    pub total: u64,
    /// Weight of the box itself.
    pub own: u64,
}

/// The tree of what is selected, in preorder; there is always a root.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Boxes.
    pub boxes: Vec<ViewBox>,
}

impl View {
    /// The tree of the cells that are selected, without what has no weight.
    pub fn of(data: &Explored<'_>, selection: &Selection) -> Self {
        let mut own = vec![0u64; data.nodes.len()];
        for cell in data.cells.iter().filter(|cell| selection.has(data, cell)) {
            if let Some(sum) = own.get_mut(cell.stack as usize) {
                *sum = sum.saturating_add(cell.weight);
            }
        }
        let total = totals(data, &own);
        let weights = total.iter().zip(&own);
        let all = data.nodes.iter().zip(weights).enumerate();
        let kept = all.filter(|(index, (_, (total, _)))| *index == 0 || **total > 0);
        let boxes = kept.map(|(_, (&(depth, frame), (&total, &own)))| ViewBox {
            frame,
            depth,
            end: 0,
            start: 0,
            total,
            own,
        });
        let mut view = Self {
            boxes: boxes.collect(),
        };
        view.place();
        view
    }

    /// Ends and starts follow from depths and totals.
    fn place(&mut self) {
        // The open boxes, by depth, with the start of the next child.
        let mut open: Vec<(usize, u64)> = Vec::new();
        let count = u32::try_from(self.boxes.len()).unwrap_or(u32::MAX);
        for index in 0..self.boxes.len() {
            let ViewBox { depth, total, .. } = self.boxes[index];
            let now = u32::try_from(index).unwrap_or(u32::MAX);
            while open.len() > depth as usize
                && let Some((closed, _)) = open.pop()
            {
                self.boxes[closed].end = now;
            }
            let start = open.last_mut().map_or(0, |(_, next)| {
                let start = *next;
                *next = next.saturating_add(total);
                start
            });
            self.boxes[index].start = start;
            open.push((index, start));
        }
        for (closed, _) in open {
            self.boxes[closed].end = count;
        }
    }

    /// A box by index; the root where there is none.
    pub fn get(&self, index: u32) -> ViewBox {
        let root = ViewBox {
            frame: NO_FRAME,
            depth: 0,
            end: 1,
            start: 0,
            total: 0,
            own: 0,
        };
        self.boxes.get(index as usize).copied().unwrap_or(root)
    }

    /// Weight of everything that is selected.
    pub fn total(&self) -> u64 {
        self.get(0).total
    }

    /// The box below, or none for the root.
    pub fn parent(&self, index: u32) -> Option<u32> {
        let depth = self.get(index).depth;
        (0..index)
            .rev()
            .find(|&before| self.get(before).depth < depth)
    }

    /// The boxes on top, from the left.
    pub fn children(&self, index: u32) -> Vec<u32> {
        let end = self.get(index).end;
        let mut children = Vec::new();
        let mut next = index + 1;
        while next < end {
            children.push(next);
            next = self.get(next).end.max(next + 1);
        }
        children
    }

    /// Frames from the root's child to the box.
    pub fn path(&self, index: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut next = Some(index);
        while let Some(at) = next.filter(|&at| at != 0) {
            path.push(self.get(at).frame);
            next = self.parent(at);
        }
        path.reverse();
        path
    }

    /// The box that a path of frames leads to, as far as it goes here.
    pub fn follow(&self, path: &[u32]) -> u32 {
        let mut at = 0;
        for &frame in path {
            let children = self.children(at);
            let Some(&child) = children
                .iter()
                .find(|&&child| self.get(child).frame == frame)
            else {
                break;
            };
            at = child;
        }
        at
    }
}

/// Weight of each node and all above it.
fn totals(data: &Explored<'_>, own: &[u64]) -> Vec<u64> {
    let mut total = own.to_vec();
    // Sums of the nodes at each depth that are not taken by their parent yet.
    let mut waiting: Vec<u64> = Vec::new();
    for (&(depth, _), sum) in data.nodes.iter().zip(&mut total).rev() {
        let depth = depth as usize;
        if waiting.len() < depth + 2 {
            waiting.resize(depth + 2, 0);
        }
        let above = waiting
            .get_mut(depth + 1)
            .map(mem::take)
            .unwrap_or_default();
        *sum = sum.saturating_add(above);
        if let Some(held) = waiting.get_mut(depth) {
            *held = held.saturating_add(*sum);
        }
    }
    total
}

/// Self and total of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionSum {
    /// Weight in the function itself.
    pub own: u64,
    /// Weight in it and what it called; recursion counts once.
    pub total: u64,
}

/// Weights of the functions that call one, and of those that it calls, by function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Callers, the heaviest first; `None` is the root: nobody called.
    pub callers: Vec<(Option<u32>, u64)>,
    /// Callees, the heaviest first.
    pub callees: Vec<(Option<u32>, u64)>,
}

/// Functions: frames of one name and module.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    /// The function of each frame.
    pub of_frame: Vec<u32>,
    /// A frame of each function.
    pub frame: Vec<u32>,
}

impl Functions {
    /// Number the functions; frames are sorted by name and module.
    pub fn of(data: &Explored<'_>) -> Self {
        let mut functions = Self::default();
        let mut before = None;
        for (number, frame) in (0u32..).zip(&data.frames) {
            if before != Some((frame.name, frame.module)) {
                before = Some((frame.name, frame.module));
                functions.frame.push(number);
            }
            let last = functions.frame.len() - 1;
            functions
                .of_frame
                .push(u32::try_from(last).unwrap_or(u32::MAX));
        }
        functions
    }

    /// The function of a frame; none for the root.
    pub fn get(&self, frame: u32) -> Option<u32> {
        self.of_frame.get(frame as usize).copied()
    }

    /// Self and total of each function.
    pub fn sums(&self, view: &View) -> Vec<FunctionSum> {
        let mut sums = vec![FunctionSum::default(); self.frame.len()];
        let mut inside = vec![0u32; self.frame.len()];
        for (index, shown) in (0u32..).zip(&view.boxes) {
            let Some(function) = self.get(shown.frame).map(|function| function as usize) else {
                continue;
            };
            let (Some(sum), Some(inside)) = (sums.get_mut(function), inside.get_mut(function))
            else {
                continue;
            };
            sum.own = sum.own.saturating_add(shown.own);
            if *inside <= index {
                sum.total = sum.total.saturating_add(shown.total);
                *inside = shown.end;
            }
        }
        sums
    }

    /// Who calls `function` and whom it calls, at its outermost boxes: recursion counts once.
    pub fn neighbours(&self, view: &View, function: u32) -> Neighbours {
        let mut callers: HashMap<Option<u32>, u64> = HashMap::default();
        let mut callees: HashMap<Option<u32>, u64> = HashMap::default();
        let mut open: Vec<u32> = Vec::new();
        let mut inside = 0;
        for (index, shown) in (0u32..).zip(&view.boxes) {
            open.truncate(shown.depth as usize);
            let caller = open.last().and_then(|&frame| self.get(frame));
            open.push(shown.frame);
            if index < inside || self.get(shown.frame) != Some(function) {
                continue;
            }
            inside = shown.end;
            add(&mut callers, caller, shown.total);
            for child in view.children(index) {
                let child = view.get(child);
                add(&mut callees, self.get(child.frame), child.total);
            }
        }
        Neighbours {
            callers: sorted(callers),
            callees: sorted(callees),
        }
    }
}

fn add(sums: &mut HashMap<Option<u32>, u64>, function: Option<u32>, weight: u64) {
    let sum = sums.entry(function).or_default();
    *sum = sum.saturating_add(weight);
}

fn sorted(sums: HashMap<Option<u32>, u64>) -> Vec<(Option<u32>, u64)> {
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|&(function, weight)| (u64::MAX - weight, function));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::ShownFrame;
    use crate::profile::{ThreadFacts, ThreadId};
    use crate::symbolized::SymbolizedProfile;

    /// main calls f, f calls f and g; g is called by main, too. Frames: f, g, main.
    fn explored(profile: &SymbolizedProfile) -> Explored<'_> {
        let frame = |name| ShownFrame {
            name,
            module: "m",
            flags: 0,
        };
        let cell = |stack, thread, cpu, weight| Cell {
            slot: 0,
            thread: ThreadId(thread),
            cpu,
            stack,
            samples: 1,
            weight,
        };
        let thread = |pid| ThreadFacts {
            pid,
            ..ThreadFacts::default()
        };
        Explored {
            profile,
            frames: vec![frame("f"), frame("g"), frame("main")],
            files: vec![None; 3],
            lines: vec![(0, 0); 3],
            nodes: vec![
                (0, NO_FRAME),
                (1, 2),
                (2, 0),
                (3, 0),
                (4, 1),
                (3, 1),
                (2, 1),
            ],
            threads: vec![thread(7), thread(8)],
            cells: vec![
                cell(3, 0, 0, 1),
                cell(4, 0, 1, 2),
                cell(5, 1, 0, 4),
                cell(6, 1, 1, 8),
                cell(1, 1, 1, 16),
            ],
            slot_ns: 1,
        }
    }

    /// Check places and sums of a tree with recursion, and that a selection leaves out what it leaves without weight.
    #[test]
    fn trees() {
        let profile = SymbolizedProfile::default();
        let data = explored(&profile);
        let view = View::of(&data, &Selection::default());
        let places: Vec<_> = view
            .boxes
            .iter()
            .map(|shown| (shown.start, shown.total, shown.own, shown.end))
            .collect();
        let expected = [
            (0, 31, 0, 7),
            (0, 31, 16, 7),
            (0, 7, 0, 6),
            (0, 3, 1, 5),
            (0, 2, 2, 5),
            (3, 4, 4, 6),
            (7, 8, 8, 7),
        ];
        assert_eq!(places, expected);
        assert_eq!(view.path(4), [2, 0, 0, 1]);
        assert_eq!(view.follow(&[2, 0, 0, 1]), 4);
        assert_eq!(view.follow(&[2, 1, 9]), 6);
        assert_eq!((view.parent(6), view.parent(0)), (Some(1), None));
        let selection = Selection {
            processes: [(0, 7)].into(),
            cpus: [1].into(),
            ..Selection::default()
        };
        let part = View::of(&data, &selection);
        assert_eq!(part.total(), 2);
        assert_eq!(
            part.boxes
                .iter()
                .map(|shown| shown.frame)
                .collect::<Vec<_>>(),
            [NO_FRAME, 2, 0, 0, 1]
        );
        let nothing = Selection {
            threads: [5].into(),
            ..Selection::default()
        };
        assert_eq!(View::of(&data, &nothing).boxes.len(), 1);
    }

    /// Check that recursion counts once in sums, and among callers and callees.
    #[test]
    fn recursion() {
        let profile = SymbolizedProfile::default();
        let data = explored(&profile);
        let view = View::of(&data, &Selection::default());
        let functions = Functions::of(&data);
        let sum = |own, total| FunctionSum { own, total };
        assert_eq!(functions.sums(&view), [sum(1, 7), sum(14, 14), sum(16, 31)]);
        let of_f = functions.neighbours(&view, 0);
        assert_eq!(of_f.callers, [(Some(2), 7)]);
        assert_eq!(of_f.callees, [(Some(1), 4), (Some(0), 3)]);
        let of_g = functions.neighbours(&view, 1);
        assert_eq!(of_g.callers, [(Some(2), 8), (Some(0), 6)]);
        assert_eq!(functions.neighbours(&view, 2).callers, [(None, 31)]);
    }
}
