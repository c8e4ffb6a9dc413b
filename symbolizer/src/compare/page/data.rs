//! What the page knows, as columns that `tree.js` reads: the tree of both sides in preorder, and the table.

use std::io::Write;

use foldhash::HashMap;
use serde::Serialize;

use super::super::comparison::{ComparedRow, Comparison};
use super::super::functions::Functions;
use super::super::render::{assurances, common, headline, p_and_q, reach};
use crate::error::Result;
use crate::export::page::pack::Packer;

/// Version of the layout that `tree.js` reads.
const LAYOUT: u32 = 1;
/// Steps in which the larger of both totals is told.
const STEPS: f64 = (1u64 << 40) as f64;

#[derive(Serialize)]
struct Head<'c> {
    layout: u32,
    title: &'c str,
    verdict: &'static str,
    headline: String,
    facts: Vec<String>,
    unit: &'c str,
    per: &'static str,
    /// Cost of one step.
    step: f64,
    strings: Vec<String>,
    kernel: Vec<bool>,
    modules: Vec<&'c str>,
    total: Row<'c>,
    rows: Vec<Row<'c>>,
    nodes: usize,
}

#[derive(Serialize)]
struct Row<'c> {
    name: String,
    module: &'c str,
    verdict: &'static str,
    why: Option<&'c str>,
    base: f64,
    new: f64,
    low: Option<f64>,
    high: Option<f64>,
    q: f64,
}

/// A box: depth, function, and the cost of it alone on either side.
struct Node {
    depth: usize,
    function: u32,
    own: [f64; 2],
}

/// Write everything as text that markup leaves alone.
pub(super) fn write(
    comparison: &Comparison,
    functions: &Functions,
    title: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let nodes = tree(functions, comparison);
    let step = comparison.total.cost[0]
        .max(comparison.total.cost[1])
        .max(f64::MIN_POSITIVE)
        / STEPS;
    let head = Head {
        layout: LAYOUT,
        title,
        verdict: comparison.verdict.name(),
        headline: [Some(headline(comparison)), common(comparison)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "),
        facts: [reach(comparison)]
            .into_iter()
            .chain(assurances(comparison))
            .chain(comparison.notes.iter().cloned())
            .collect(),
        unit: &comparison.unit,
        per: comparison.basis.per(),
        step,
        strings: (0..functions.keys.len())
            .map(|function| functions.shown(function))
            .collect(),
        kernel: functions.keys.iter().map(|key| key.kernel).collect(),
        modules: functions
            .facts
            .iter()
            .map(|facts| facts.module.as_str())
            .collect(),
        total: row(&comparison.total),
        rows: comparison.rows.iter().map(row).collect(),
        nodes: nodes.len(),
    };
    let mut packer = Packer::new(out);
    packer.bytes(&serde_json::to_vec(&head)?)?;
    packer.column(nodes.iter().map(|node| node.depth as u64))?;
    packer.column(nodes.iter().skip(1).map(|node| u64::from(node.function)))?;
    for side in 0..2 {
        packer.column(nodes.iter().map(|node| steps(node.own[side] / step)))?;
    }
    packer.finish()?;
    Ok(())
}

/// A cost in steps, which are far finer than what is measured.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounded, and no more than some times 2^40"
)]
fn steps(value: f64) -> u64 {
    if value > 0.0 { value.round() as u64 } else { 0 }
}

fn row(row: &ComparedRow) -> Row<'_> {
    let (low, high) = row.bounds();
    Row {
        name: row.shown(),
        module: &row.module,
        verdict: row.verdict.name(),
        why: row.why.as_deref(),
        base: row.cost[0],
        new: row.cost[1],
        low: Some(low).filter(|low| low.is_finite()),
        high: Some(high).filter(|high| high.is_finite()),
        q: p_and_q(row).1,
    }
}

/// The stacks of both sides as a tree in preorder, children by name, below a root.
fn tree(functions: &Functions, comparison: &Comparison) -> Vec<Node> {
    let mut costs: HashMap<&[u32], [f64; 2]> = HashMap::default();
    for stack in &functions.stacks {
        let cost = costs.entry(&stack.functions).or_default();
        for &(column, weight, _) in &stack.weights {
            let column = column as usize;
            let [base, new] = &comparison.exposures;
            let (side, exposure, runs) = match base.get(column) {
                Some(exposure) => (0, exposure, base.len()),
                None => match new.get(column - base.len()) {
                    Some(exposure) => (1, exposure, new.len()),
                    None => continue,
                },
            };
            cost[side] += weight / exposure / runs as f64;
        }
    }
    // Functions have numbers in the order of their names: sorted by them from the root, paths are in preorder.
    let mut paths: Vec<(Vec<u32>, [f64; 2])> = costs
        .into_iter()
        .map(|(stack, cost)| (stack.iter().rev().copied().collect(), cost))
        .collect();
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    let mut nodes = vec![Node {
        depth: 0,
        function: 0,
        own: [0.0; 2],
    }];
    let mut before: &[u32] = &[];
    for (path, cost) in &paths {
        let shared = path.iter().zip(before).take_while(|(a, b)| a == b).count();
        for (depth, &function) in path.iter().enumerate().skip(shared) {
            nodes.push(Node {
                depth: depth + 1,
                function,
                own: [0.0; 2],
            });
        }
        if let Some(last) = nodes.last_mut() {
            last.own = [last.own[0] + cost[0], last.own[1] + cost[1]];
        }
        before = path;
    }
    nodes
}
