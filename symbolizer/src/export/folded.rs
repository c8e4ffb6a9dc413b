//! Folded stacks: `root;…;leaf weight`, one line each, sorted.

use std::collections::BTreeMap;
use std::io::Write;

use foldhash::HashMap;

use super::exporter::{ExportSample, Exporter, Source};
use crate::error::Result;
use crate::profile::{Row, ThreadId};
use crate::report::NameFilter;
use crate::symbolized::{Stack, SymbolizedProfile};
use crate::text::{StringId, StringTable};

/// Fold the selected stacks of `profile`; each starts with its thread's name.
///
/// A branch below `least_percent` of the total goes into its parent. Threads of one name are folded at a time, so that
/// memory grows with the stacks of one of them and with what is shown.
pub fn fold(
    profile: &SymbolizedProfile,
    names: &NameFilter,
    least_percent: f64,
) -> BTreeMap<String, u64> {
    let unit = profile.unit();
    let selected = names.of(profile);
    let mut stack = Stack::new();
    let mut by_comm: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    let mut total = 0u64;
    for row in &profile.rows {
        if selected.stack(row, &mut stack) {
            total = total.saturating_add(profile.weight(row, unit));
            by_comm
                .entry(root(profile, row.thread))
                .or_default()
                .push(row);
        }
    }
    let least = total as f64 * least_percent.max(0.0) / 100.0;
    let parts = Parts::of(profile);
    let mut folded = BTreeMap::new();
    for (comm, rows) in by_comm {
        let mut tree = Tree::default();
        for row in rows {
            selected.stack(row, &mut stack);
            let names = stack.iter().rev().map(|&frame| parts.of_frame(frame));
            tree.add(names, profile.weight(row, unit));
        }
        tree.write(&comm, &parts, least, &mut folded);
    }
    folded
}

fn root(profile: &SymbolizedProfile, thread: ThreadId) -> String {
    let comm = profile
        .thread(thread)
        .map_or("", |thread| thread.comm.as_str());
    if comm.is_empty() {
        "[unknown]".to_owned()
    } else {
        part(comm, false)
    }
}

/// A name as it may stand between semicolons. Kernel functions get perf's mark, which gives them their colour.
pub(super) fn part(name: &str, kernel: bool) -> String {
    let mut part = name.replace(';', ":");
    if kernel {
        part.push_str("_[k]");
    }
    part
}

/// What each frame is called between semicolons.
struct Parts {
    texts: StringTable,
    of_frames: Vec<StringId>,
}

impl Parts {
    fn of(profile: &SymbolizedProfile) -> Self {
        let mut texts = StringTable::default();
        let frames = profile.frames().iter();
        let of_frames = frames
            .map(|frame| texts.intern(&part(profile.text(frame.name), frame.kernel)))
            .collect();
        Self { texts, of_frames }
    }

    fn of_frame(&self, frame: u32) -> StringId {
        self.of_frames
            .get(frame as usize)
            .copied()
            .unwrap_or_default()
    }
}

/// Stacks as a tree: each node has its name, its parent and the weight of all stacks through it.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<(StringId, Option<u32>, u64)>,
    index: HashMap<(Option<u32>, StringId), u32>,
    /// Weight of all stacks, and of those without a frame.
    total: u64,
}

impl Tree {
    /// Add a stack, root first; tells its leaf.
    fn add(&mut self, names: impl Iterator<Item = StringId>, weight: u64) -> Option<u32> {
        self.total = self.total.saturating_add(weight);
        let mut parent = None;
        for name in names {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let node = *self.index.entry((parent, name)).or_insert(next);
            if node == next {
                self.nodes.push((name, parent, 0));
            }
            if let Some((_, _, sum)) = self.nodes.get_mut(node as usize) {
                *sum = sum.saturating_add(weight);
            }
            parent = Some(node);
        }
        parent
    }

    /// Write a line for each node with weight of its own; one below `least` gives it to its parent.
    fn write(&self, root: &str, parts: &Parts, least: f64, folded: &mut BTreeMap<String, u64>) {
        let shown = |weight: u64| weight as f64 >= least && weight > 0;
        let mut own: Vec<u64> = self.nodes.iter().map(|&(_, _, weight)| weight).collect();
        let mut own_root = self.total;
        for &(_, parent, weight) in self.nodes.iter().filter(|node| shown(node.2)) {
            let holder = match parent {
                Some(parent) => own.get_mut(parent as usize),
                None => Some(&mut own_root),
            };
            if let Some(holder) = holder {
                *holder = holder.saturating_sub(weight);
            }
        }
        let mut add = |line: String, weight: u64| {
            let sum: &mut u64 = folded.entry(line).or_default();
            *sum = sum.saturating_add(weight);
        };
        if own_root > 0 {
            add(root.to_owned(), own_root);
        }
        for (index, &(_, _, weight)) in self.nodes.iter().enumerate() {
            if let Some(&own) = own.get(index).filter(|&&own| own > 0 && shown(weight)) {
                add(self.line(root, parts, index), own);
            }
        }
    }

    fn line(&self, root: &str, parts: &Parts, leaf: usize) -> String {
        let mut names = Vec::new();
        let mut next = Some(leaf);
        while let Some(&(name, parent, _)) = next.and_then(|node| self.nodes.get(node)) {
            names.push(parts.texts.get(name));
            next = parent.map(|parent| parent as usize);
        }
        let mut line = root.to_owned();
        for name in names.iter().rev() {
            line.push(';');
            line.push_str(name);
        }
        line
    }
}

/// What comes of a node in the order of lines: the line of its own, or those of what is below it.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    depth: usize,
    is_below: bool,
}

/// All stacks, each with the weight that ends there.
///
/// The stacks are held as a tree and never as text, which would be many times as large.
#[derive(Debug, Default)]
pub struct Folded {
    tree: Tree,
    texts: StringTable,
    of_frames: HashMap<u32, StringId>,
    /// Weight that ends at each node.
    own: Vec<u64>,
}

impl Folded {
    fn name(&self, node: u32) -> &str {
        let found = self.tree.nodes.get(node as usize);
        found.map_or("", |&(name, _, _)| self.texts.get(name))
    }

    /// Nodes by parent, those without one first.
    fn by_parent(&self) -> Vec<(Option<u32>, u32)> {
        let nodes = (0u32..).zip(&self.tree.nodes);
        let mut children: Vec<_> = nodes
            .map(|(node, &(_, parent, _))| (parent, node))
            .collect();
        children.sort_unstable();
        children
    }

    /// Put the parts of the children of `parent`, which are at `depth`, onto `open`, the last one first, in the order of
    /// bytes: a name's own line comes before longer names that begin with it, what is below it where `;` stands.
    fn open(
        &self,
        children: &[(Option<u32>, u32)],
        parent: Option<u32>,
        depth: usize,
        open: &mut Vec<Part>,
    ) {
        let start = children.partition_point(|&(of, _)| of < parent);
        let behind = children.get(start..).unwrap_or_default();
        let own = behind.iter().take_while(|&&(of, _)| of == parent);
        let both = |&(_, node)| {
            [false, true].map(|is_below| Part {
                node,
                depth,
                is_below,
            })
        };
        let mut parts: Vec<Part> = own.flat_map(both).collect();
        let bytes = |part: &Part| {
            let separator = part.is_below.then_some(b';');
            self.name(part.node).bytes().chain(separator)
        };
        parts.sort_by(|a, b| bytes(b).cmp(bytes(a)));
        open.append(&mut parts);
    }
}

impl Exporter for Folded {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        _: &mut dyn Write,
    ) -> Result<()> {
        let profile = source.profile;
        let root = self.texts.intern(&root(profile, sample.thread));
        let mut names = vec![root];
        for frame in sample.stack.iter().rev() {
            let texts = &mut self.texts;
            let name = self.of_frames.entry(frame.named).or_insert_with(|| {
                let frame = profile.frame(frame.named);
                texts.intern(&part(profile.text(frame.name), frame.kernel))
            });
            names.push(*name);
        }
        let leaf = self.tree.add(names.into_iter(), sample.weight);
        self.own.resize(self.tree.nodes.len(), 0);
        if let Some(own) = leaf.and_then(|leaf| self.own.get_mut(leaf as usize)) {
            *own = own.saturating_add(sample.weight);
        }
        Ok(())
    }

    fn finish(&mut self, _: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        self.write(out)
    }
}

impl Folded {
    fn write(&self, out: &mut dyn Write) -> Result<()> {
        let children = self.by_parent();
        let (mut open, mut path) = (Vec::new(), Vec::new());
        self.open(&children, None, 0, &mut open);
        while let Some(part) = open.pop() {
            path.truncate(part.depth);
            path.push(self.name(part.node));
            if part.is_below {
                self.open(&children, Some(part.node), part.depth + 1, &mut open);
                continue;
            }
            let own = self.own.get(part.node as usize).copied().unwrap_or(0);
            if own > 0 {
                writeln!(out, "{} {own}", path.join(";"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Check that lines come in the order of their bytes, whatever stands in names.
        #[test]
        fn lines_in_order(stacks in prop::collection::vec(prop::collection::vec("[a1! ]{1,3}", 1..4), 1..40)) {
            let mut folded = Folded::default();
            let mut lines = BTreeMap::new();
            for stack in &stacks {
                let names: Vec<StringId> = stack.iter().map(|name| folded.texts.intern(name)).collect();
                let leaf = folded.tree.add(names.into_iter(), 1).unwrap();
                folded.own.resize(folded.tree.nodes.len(), 0);
                folded.own[leaf as usize] += 1;
                *lines.entry(stack.join(";")).or_insert(0u64) += 1;
            }
            let mut out = Vec::new();
            folded.write(&mut out).unwrap();
            let expected: String = lines.iter().map(|(line, own)| format!("{line} {own}\n")).collect();
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    /// Check that a branch below the least weight goes into its parent and that the sum stays.
    #[test]
    fn small_branches() {
        let mut texts = StringTable::default();
        let [main, big, small] = ["main", "big", "small"].map(|text| texts.intern(text));
        let parts = Parts {
            texts,
            of_frames: Vec::new(),
        };
        let mut tree = Tree::default();
        tree.add([main, big].into_iter(), 90);
        tree.add([main, small].into_iter(), 4);
        tree.add([small].into_iter(), 5);
        tree.add([].into_iter(), 1);
        let fold = |least| {
            let mut folded = BTreeMap::new();
            tree.write("sh", &parts, least, &mut folded);
            folded.into_iter().collect::<Vec<_>>()
        };
        let line = |text: &str, weight| (text.to_owned(), weight);
        let all = [
            line("sh", 1),
            line("sh;main;big", 90),
            line("sh;main;small", 4),
            line("sh;small", 5),
        ];
        assert_eq!(fold(0.0), all);
        let large = [line("sh", 6), line("sh;main", 4), line("sh;main;big", 90)];
        assert_eq!(fold(10.0), large);
    }
}
