//! Functions that are on one side only, and may be the same under another name.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use foldhash::{HashMap, HashSet};

use super::functions::Functions;

/// Functions of either side that are looked at: the heaviest.
const MOST: usize = 200;
/// Part of the cost of its side below which a function is not looked at: by chance alone it may be on one side only.
const LEAST_COST: f64 = 0.005;
/// Score from which a pair is told.
const LEAST_SCORE: f64 = 0.6;
/// Ratio of costs that a pair may have.
const COSTS: (f64, f64) = (0.5, 2.0);

/// A function that was probably renamed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rename {
    /// Function of the base side.
    pub(super) from: u32,
    /// Function of the new side.
    pub(super) to: u32,
    /// How alike they are, 0 to 1: callees, callers, file and cost.
    pub(super) score: f64,
}

/// Pairs, each function once, the most alike first.
///
/// A pair has at least two thirds of its callees or callers in common and costs between half and twice as much.
pub(super) fn renames(functions: &Functions) -> Vec<Rename> {
    let cost = |function: usize| -> f64 { functions.row(function, true).iter().sum() };
    let all: f64 = functions.all.iter().sum();
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for function in 0..functions.keys.len() {
        let is_named = functions
            .facts
            .get(function)
            .is_some_and(|facts| !facts.is_unnamed);
        if !is_named || cost(function) < LEAST_COST * all / 2.0 {
            continue;
        }
        match functions.is_on_sides(function) {
            [true, false] => gone.push(function),
            [false, true] => come.push(function),
            _ => {}
        }
    }
    for side in [&mut gone, &mut come] {
        side.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)).then(a.cmp(b)));
        side.truncate(MOST);
    }
    let near = Neighbours::of(functions, gone.iter().chain(&come).copied());
    let mut pairs = Vec::new();
    for &from in &gone {
        for &to in &come {
            if let Some(score) = near.score(functions, from, to) {
                pairs.push((score, from, to));
            }
        }
    }
    pairs.sort_by(|a, b| {
        b.0.partial_cmp(&a.0)
            .unwrap_or(Ordering::Equal)
            .then((a.1, a.2).cmp(&(b.1, b.2)))
    });
    let mut taken = HashSet::default();
    let mut found = Vec::new();
    for (score, from, to) in pairs {
        if taken.contains(&from) || taken.contains(&to) {
            continue;
        }
        taken.extend([from, to]);
        let number = |function: usize| u32::try_from(function).unwrap_or(u32::MAX);
        found.push(Rename {
            from: number(from),
            to: number(to),
            score,
        });
    }
    found
}

/// Who calls, and who is called by, the functions that are looked at.
struct Neighbours {
    callers: HashMap<u32, BTreeSet<u32>>,
    callees: HashMap<u32, BTreeSet<u32>>,
}

impl Neighbours {
    fn of(functions: &Functions, wanted: impl Iterator<Item = usize>) -> Self {
        let wanted: HashSet<u32> = wanted
            .filter_map(|function| u32::try_from(function).ok())
            .collect();
        let mut near = Self {
            callers: HashMap::default(),
            callees: HashMap::default(),
        };
        for stack in &functions.stacks {
            for pair in stack.functions.windows(2) {
                let &[callee, caller] = pair else { continue };
                if wanted.contains(&callee) {
                    near.callers.entry(callee).or_default().insert(caller);
                }
                if wanted.contains(&caller) {
                    near.callees.entry(caller).or_default().insert(callee);
                }
            }
        }
        near
    }

    fn score(&self, functions: &Functions, from: usize, to: usize) -> Option<f64> {
        let cost = |function: usize, side: usize| -> f64 {
            let row = functions.row(function, true);
            let (base, new) = row.split_at(functions.first_new.min(row.len()));
            let side = if side == 0 { base } else { new };
            side.iter().sum::<f64>() / side.len().max(1) as f64
        };
        let ratio = cost(to, 1) / cost(from, 0);
        let (key, other) = (functions.keys.get(from)?, functions.keys.get(to)?);
        if !(COSTS.0..=COSTS.1).contains(&ratio) || key.kernel != other.kernel {
            return None;
        }
        let number = |function: usize| u32::try_from(function).unwrap_or(u32::MAX);
        let alike = |sets: &HashMap<u32, BTreeSet<u32>>| match (
            sets.get(&number(from)),
            sets.get(&number(to)),
        ) {
            (Some(a), Some(b)) => {
                a.intersection(b).count() as f64 / a.union(b).count().max(1) as f64
            }
            (None, None) => 1.0,
            _ => 0.0,
        };
        let file = |function: usize| {
            let file = functions.facts.get(function)?.file.as_deref()?;
            Some(file.rsplit('/').next().unwrap_or(file))
        };
        let same_file = match (file(from), file(to)) {
            (Some(a), Some(b)) if a == b => 1.0,
            (Some(_), Some(_)) => 0.0,
            _ => 0.5,
        };
        let costs = ratio.min(1.0 / ratio);
        let score = 0.3 * alike(&self.callers)
            + 0.3 * alike(&self.callees)
            + 0.25 * same_file
            + 0.15 * costs;
        (score >= LEAST_SCORE).then_some(score)
    }
}
