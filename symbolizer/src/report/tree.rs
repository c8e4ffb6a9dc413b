//! Who calls whom: the stacks as a tree from their roots, or from their leaves, with small parts folded.

use std::cmp::Reverse;
use std::io::Write;

use foldhash::HashMap;
use serde::Serialize;

use super::names::NameFilter;
use super::render::{amount, share};
use super::table::{GroupBy, Groups};
use crate::error::Result;
use crate::symbolized::{Stack, SymbolizedProfile};
use crate::text::Columns;

/// Where a tree starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At the leaves: below each function those that called it.
    Callers,
    /// At the roots: below each function those that it called.
    Callees,
}

/// A finished tree.
#[derive(Clone, Debug, Serialize)]
pub struct CallTree {
    /// Version of this layout.
    pub schema: &'static str,
    /// Unit of all numbers.
    pub unit: String,
    /// Sum over all selected samples.
    pub total: u64,
    /// `callers` or `callees`.
    pub tree: &'static str,
    /// Number of selected samples.
    pub samples: u64,
    /// Rows in the order of the tree: each one's children stand behind it, the greatest first.
    pub rows: Vec<TreeRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeRow {
    /// How far from the top, from 0.
    pub depth: usize,
    /// Function; what was folded has none.
    pub name: String,
    /// Path of the module.
    pub module: String,
    /// Time in the function itself on this path; of callers at the top alone.
    #[serde(rename = "self")]
    pub self_weight: u64,
    /// Time on this path.
    pub total: u64,
    /// Whether the function was only ever met inlined.
    pub inlined: bool,
    /// Number of functions that stand folded in this row; else 0.
    pub folded: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    group: u32,
    own: u64,
    total: u64,
}

/// Nodes by parent.
#[derive(Default)]
struct Nodes {
    list: Vec<Node>,
    index: HashMap<(Option<u32>, u32), u32>,
    /// Children of each node; those at the top stand behind the last node.
    children: Vec<Vec<u32>>,
    top: Vec<u32>,
}

impl Nodes {
    fn at(&mut self, parent: Option<u32>, group: u32) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let id = *self.index.entry((parent, group)).or_insert(next);
        if id == next {
            self.list.push(Node {
                group,
                own: 0,
                total: 0,
            });
            self.children.push(Vec::new());
            let siblings = match parent {
                Some(parent) => self.children.get_mut(parent as usize),
                None => Some(&mut self.top),
            };
            if let Some(siblings) = siblings {
                siblings.push(id);
            }
        }
        id
    }

    /// Add a stack, from the top of the tree on; `own` is the place of the function that ran.
    fn add(&mut self, groups: impl ExactSizeIterator<Item = u32>, own: usize, weight: u64) {
        let mut parent = None;
        for (depth, group) in groups.enumerate() {
            let id = self.at(parent, group);
            if let Some(node) = self.list.get_mut(id as usize) {
                node.total = node.total.saturating_add(weight);
                if depth == own {
                    node.own = node.own.saturating_add(weight);
                }
            }
            parent = Some(id);
        }
    }
}

/// The selected stacks of `profile` as a tree; paths below `least` percent of the total are folded.
pub fn call_tree(
    profile: &SymbolizedProfile,
    direction: Direction,
    names: &NameFilter,
    least: f64,
) -> CallTree {
    let unit = profile.unit().to_owned();
    let mut tree = CallTree {
        schema: "rawstack.tree.v1",
        total: 0,
        tree: match direction {
            Direction::Callers => "callers",
            Direction::Callees => "callees",
        },
        samples: 0,
        rows: Vec::new(),
        unit,
    };
    let groups = Groups::of(profile, GroupBy::Function);
    let group = |frame: &u32| groups.of_frame.get(*frame as usize).copied().unwrap_or(0);
    let mut nodes = Nodes::default();
    let selected = names.of(profile);
    let mut stack = Stack::new();
    for row in &profile.rows {
        if !selected.stack(row, &mut stack) {
            continue;
        }
        let weight = profile.weight(row, &tree.unit);
        tree.total = tree.total.saturating_add(weight);
        tree.samples = tree.samples.saturating_add(row.samples);
        match direction {
            Direction::Callers => nodes.add(stack.iter().map(group), 0, weight),
            Direction::Callees => {
                let leaf = stack.len().saturating_sub(1);
                nodes.add(stack.iter().rev().map(group), leaf, weight);
            }
        }
    }
    tree.rows = rows(profile, &groups, &nodes, tree.total as f64 * least / 100.0);
    tree
}

/// Rows of the tree. Stacks may be thousands deep, so nothing here recurses.
fn rows(profile: &SymbolizedProfile, groups: &Groups, nodes: &Nodes, least: f64) -> Vec<TreeRow> {
    let mut rows = Vec::new();
    let mut open = vec![(0, nodes.top.as_slice(), None)];
    while let Some((depth, siblings, node)) = open.pop() {
        if let Some(node) = node {
            rows.push(row(profile, groups, depth, node));
        }
        let depth = if node.is_some() { depth + 1 } else { depth };
        let of = |id: &u32| nodes.list.get(*id as usize).copied();
        let mut shown: Vec<(u32, Node)> = Vec::new();
        let (mut folded, mut weight) = (0u64, 0u64);
        for &id in siblings {
            match of(&id) {
                Some(node) if node.total as f64 >= least => shown.push((id, node)),
                Some(node) => {
                    folded += 1;
                    weight = weight.saturating_add(node.total);
                }
                None => {}
            }
        }
        if folded > 0 {
            open.push((depth, &[], Some(Shown::Folded(folded, weight))));
        }
        shown.sort_by_key(|(_, node)| {
            (
                Reverse(node.total),
                Reverse(node.own),
                groups.text(profile, node.group),
            )
        });
        for (id, node) in shown.into_iter().rev() {
            let children = nodes.children.get(id as usize);
            let children = children.map(Vec::as_slice).unwrap_or_default();
            open.push((depth, children, Some(Shown::Node(node))));
        }
    }
    rows
}

#[derive(Clone, Copy)]
enum Shown {
    Node(Node),
    Folded(u64, u64),
}

fn row(profile: &SymbolizedProfile, groups: &Groups, depth: usize, shown: Shown) -> TreeRow {
    match shown {
        Shown::Node(node) => {
            let (name, module) = groups.text(profile, node.group);
            TreeRow {
                depth,
                name: name.to_owned(),
                module: module.to_owned(),
                self_weight: node.own,
                total: node.total,
                inlined: groups.is_inlined(node.group),
                folded: 0,
            }
        }
        Shown::Folded(count, weight) => TreeRow {
            depth,
            name: String::new(),
            module: String::new(),
            self_weight: 0,
            total: weight,
            inlined: false,
            folded: count,
        },
    }
}

/// Write a tree for people, lines cut to `columns`.
pub fn write_text(tree: &CallTree, columns: Columns, out: &mut dyn Write) -> Result<()> {
    let (total, samples) = (amount(tree.total, &tree.unit), tree.samples);
    writeln!(
        out,
        "# total {total} in {samples} samples, {}; percentages are of it",
        tree.tree
    )?;
    writeln!(out, "{:>7}  {:>7}  function", "total", "self")?;
    for row in &tree.rows {
        let percent = |weight| share(weight, tree.total);
        let (total, own) = (percent(row.total), percent(row.self_weight));
        // Below a depth that no screen has, the number says it better.
        let indent = match row.depth {
            depth @ ..40 => "  ".repeat(depth),
            depth => format!("{}[{depth}] ", "  ".repeat(40)),
        };
        let mut line = format!("{total:>6.2}%  {own:>6.2}%  {indent}");
        match row.folded {
            0 => line.push_str(&row.name),
            1 => line.push_str("… 1 smaller"),
            count => line.push_str(&format!("… {count} smaller")),
        }
        if row.inlined {
            line.push_str(" (inlined)");
        }
        if !row.module.is_empty() {
            line.push_str("  ");
            line.push_str(row.module.rsplit('/').next().unwrap_or(&row.module));
        }
        writeln!(out, "{}", columns.fit(&line))?;
    }
    Ok(())
}

/// Write one JSON object.
pub fn write_json(tree: &CallTree, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, tree)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Write CSV with a line of headings.
pub fn write_csv(tree: &CallTree, out: &mut dyn Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for row in &tree.rows {
        csv.serialize(row)?;
    }
    csv.flush()?;
    Ok(())
}
