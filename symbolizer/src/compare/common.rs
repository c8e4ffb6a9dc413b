//! What functions that got slower have in common: callers that most of their rise is below. Where small functions are inlined
//! into many places, these tell more of the cause than the functions do.

use foldhash::{HashMap, HashSet};

use super::functions::Functions;
use super::scale::mean_rates;

/// Part of the rise that must be below a caller.
const MOST: f64 = 0.8;
/// Callers that are told.
const TOLD: usize = 3;

/// Callers, by their names, that most of the rise of all functions of `risen` is below: the one with the least cost first.
/// None for one function alone, whose callers say nothing new.
pub(super) fn common_callers(
    functions: &Functions,
    risen: &HashSet<u32>,
    exposures: [&[f64]; 2],
) -> Vec<String> {
    if risen.len() < 2 {
        return Vec::new();
    }
    let factors = |side: usize, sign: f64| {
        let runs = exposures[side].len() as f64;
        let factor = move |exposure: &f64| sign / (exposure * runs);
        exposures[side].iter().map(factor)
    };
    let factors: Vec<f64> = factors(0, -1.0).chain(factors(1, 1.0)).collect();
    let (mut below, mut all): (HashMap<u32, f64>, f64) = (HashMap::default(), 0.0);
    let mut seen = HashSet::default();
    for stack in &functions.stacks {
        let Some((leaf, callers)) = stack.functions.split_first() else {
            continue;
        };
        if !risen.contains(leaf) {
            continue;
        }
        let rises = stack
            .weights
            .iter()
            .filter_map(|&(column, weight, _)| Some(factors.get(column as usize)? * weight));
        let rise: f64 = rises.sum();
        all += rise;
        seen.clear();
        for &caller in callers {
            if seen.insert(caller) && !risen.contains(&caller) {
                *below.entry(caller).or_default() += rise;
            }
        }
    }
    let cost = |caller: u32| mean_rates(functions.row(caller as usize, true), exposures)[1];
    let mut common: Vec<(f64, u32)> = below
        .into_iter()
        .filter(|(_, rise)| all > 0.0 && *rise >= MOST * all)
        .map(|(caller, _)| (cost(caller), caller))
        .collect();
    common.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let nearest = common.into_iter().take(TOLD);
    nearest
        .map(|(_, caller)| functions.shown(caller as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::functions::{FunctionFacts, FunctionKey, FunctionStack};
    use super::*;

    /// Check that of two functions which rose below one caller, it and its caller are told, and what has little of the rise
    /// is not; and that one function alone has no common caller.
    #[test]
    fn below_one_caller() {
        let names = ["main", "read", "add", "hash", "equal", "draw"];
        let key = |name: &str| FunctionKey {
            name: name.to_owned(),
            ..FunctionKey::default()
        };
        // Base in column 0, new in column 1.
        let stack = |functions: &[u32], base: f64, new: f64| FunctionStack {
            functions: functions.into(),
            weights: [(0, base, base), (1, new, new)].into(),
        };
        let mut functions = Functions {
            keys: names.map(key).to_vec(),
            facts: vec![FunctionFacts::default(); names.len()],
            width: 2,
            first_new: 1,
            stacks: vec![
                stack(&[3, 2, 1, 0], 10.0, 90.0),
                stack(&[4, 3, 2, 1, 0], 5.0, 45.0),
                stack(&[4, 5, 0], 5.0, 15.0),
                stack(&[5, 0], 500.0, 500.0),
                stack(&[1, 0], 100.0, 100.0),
            ],
            ..Functions::default()
        };
        functions.add_up();
        let exposures: [&[f64]; 2] = [&[1.0], &[1.0]];
        let told = |risen: &[u32]| {
            let risen = risen.iter().copied().collect();
            common_callers(&functions, &risen, exposures)
        };
        assert_eq!(told(&[3, 4]), ["add", "read", "main"]);
        assert!(told(&[3]).is_empty());
    }
}
