//! Cost that moved instead of growing: a function is heavier, and what it belongs to is not.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};

use super::functions::Functions;
use super::stats::noise::{Item, Moments, Noise};
use super::stats::{Margin, Tested};

/// Part of a function's cost that must lie below a caller for it to be the function's domain.
const COVERED: f64 = 0.95;
/// Cost of a domain at most, as a multiple of the change.
const WIDEST: f64 = 10.0;
/// Part of the change that its domain may have changed by.
const LEFT: f64 = 0.3;
/// Part of the change that its domain's rise must be sure to lie below. To ask for less than a margin would need runs that
/// hardly differ: of code that had moved, three of four comparisons failed all the same.
const SURELY_LEFT: f64 = 1.0 / 3.0;
/// Level of that bound, and of the test whether the domain itself rose.
const LEVEL: f64 = 0.05;

/// What is needed to judge domains as functions were judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yardstick<'y> {
    /// Exposure of each column, by side.
    pub(super) exposures: [&'y [f64]; 2],
    /// Noise.
    pub(super) noise: &'y Noise,
    /// Margin.
    pub(super) margin: Margin,
    /// Total cost of the base per exposure, in the unit of weights.
    pub(super) total: f64,
    /// What one count stands for, in the unit of weights.
    pub(super) unit: f64,
}

/// A group of functions in which cost moved.
#[derive(Clone, Debug)]
struct Domain {
    name: String,
    /// Weight in each column.
    row: Vec<f64>,
}

/// For each function of `risen`, with its rise in the unit of weights per exposure, the domain in which it moved.
pub(super) fn moved(
    functions: &Functions,
    risen: &[(usize, f64)],
    yardstick: &Yardstick<'_>,
) -> Vec<Option<String>> {
    if risen.is_empty() {
        return Vec::new();
    }
    let callers = callers(functions, risen);
    let groups = Groups::of(functions);
    let find = |&(function, rise): &(usize, f64)| {
        let of_callers = callers
            .get(&function)
            .into_iter()
            .flatten()
            .map(|&caller| Domain {
                name: format!("callees of {}", functions.shown(caller)),
                row: functions.row(caller, true).to_vec(),
            });
        let domains = of_callers.chain(groups.around(functions, function));
        let mut fitting = domains.filter(|domain| yardstick.is_still(&domain.row, rise));
        fitting.next().map(|domain| domain.name)
    };
    risen.iter().map(find).collect()
}

impl Yardstick<'_> {
    /// Whether a domain hardly changed, beside a rise in it of `rise`.
    fn is_still(&self, row: &[f64], rise: f64) -> bool {
        let counts: Vec<f64> = row.iter().map(|weight| weight / self.unit).collect();
        let (base, new) = counts.split_at(self.exposures[0].len().min(counts.len()));
        let moments = Moments::of(
            &Item {
                counts: [base, new],
            },
            self.exposures,
        );
        let margin = self.margin.rate(moments.means[0], self.total / self.unit);
        let runs = [base.len(), new.len()];
        let tested = Tested::of(moments, self.noise, runs, margin);
        let rise = rise / self.unit;
        let cost = moments.means[0].max(moments.means[1]);
        cost <= WIDEST * rise
            && tested.change().abs() < LEFT * rise
            && tested.bounds(LEVEL).1 < margin.max(SURELY_LEFT * rise)
            && tested.p_up > LEVEL
    }
}

/// For each function the callers that have nearly all of its cost below them, the nearest first.
fn callers(functions: &Functions, risen: &[(usize, f64)]) -> HashMap<usize, Vec<usize>> {
    let wanted: HashSet<usize> = risen.iter().map(|(function, _)| *function).collect();
    // Weight of the function below each caller, and the sum of its distances.
    let mut below: HashMap<usize, BTreeMap<u32, (f64, f64)>> = HashMap::default();
    let mut seen = HashSet::default();
    for stack in &functions.stacks {
        let Some(&leaf) = stack.functions.first() else {
            continue;
        };
        if !wanted.contains(&(leaf as usize)) {
            continue;
        }
        let weight: f64 = stack.weights.iter().map(|weight| weight.1).sum();
        let sums = below.entry(leaf as usize).or_default();
        seen.clear();
        for (distance, &caller) in stack.functions.iter().enumerate().skip(1) {
            if caller != leaf && seen.insert(caller) {
                let sum = sums.entry(caller).or_default();
                sum.0 += weight;
                sum.1 += weight * distance as f64;
            }
        }
    }
    let nearest = |(function, sums): (usize, BTreeMap<u32, (f64, f64)>)| {
        let own: f64 = functions.row(function, false).iter().sum();
        let mut covering: Vec<(f64, usize)> = sums
            .into_iter()
            .filter(|(_, sum)| sum.0 >= COVERED * own && sum.0 > 0.0)
            .map(|(caller, sum)| (sum.1 / sum.0, caller as usize))
            .collect();
        covering.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        (
            function,
            covering.into_iter().map(|(_, caller)| caller).collect(),
        )
    };
    below.into_iter().map(nearest).collect()
}

/// Functions by name, by namespace and by file.
struct Groups<'f> {
    /// Lines of one function, and functions of one name.
    names: HashMap<&'f str, Vec<usize>>,
    namespaces: HashMap<&'f str, Vec<usize>>,
    files: HashMap<&'f str, Vec<usize>>,
}

impl<'f> Groups<'f> {
    fn of(functions: &'f Functions) -> Self {
        let mut groups = Self {
            names: HashMap::default(),
            namespaces: HashMap::default(),
            files: HashMap::default(),
        };
        for (number, (key, facts)) in functions.keys.iter().zip(&functions.facts).enumerate() {
            groups.names.entry(&key.name).or_default().push(number);
            for namespace in namespaces(&key.name) {
                groups.namespaces.entry(namespace).or_default().push(number);
            }
            if let Some(file) = &facts.file {
                groups.files.entry(file).or_default().push(number);
            }
        }
        groups
    }

    fn around<'s>(
        &'s self,
        functions: &'s Functions,
        function: usize,
    ) -> impl Iterator<Item = Domain> + 's {
        let name = functions
            .keys
            .get(function)
            .map_or("", |key| key.name.as_str());
        let file = functions
            .facts
            .get(function)
            .and_then(|facts| facts.file.as_deref());
        let in_namespace = move |namespace: &'s str| {
            self.namespaces
                .get(namespace)
                .map(|members| (format!("namespace {namespace}"), members))
        };
        let in_file = file.and_then(|file| {
            self.files
                .get(file)
                .map(|members| (format!("file {file}"), members))
        });
        let of_name = self
            .names
            .get(name)
            .map(|members| (name.to_owned(), members));
        let groups = of_name
            .into_iter()
            .chain(namespaces(name).filter_map(in_namespace))
            .chain(in_file);
        groups
            .filter(|(_, members)| members.len() > 1)
            .map(|(name, members)| {
                let mut row = vec![0.0; functions.width];
                for &member in members {
                    row.iter_mut()
                        .zip(functions.row(member, false))
                        .for_each(|(sum, weight)| *sum += weight);
                }
                Domain { name, row }
            })
    }
}

/// The namespaces around a name, the innermost first; only what stands before all brackets is one.
fn namespaces(name: &str) -> impl Iterator<Item = &str> {
    let plain = name
        .find(['<', '(', '{', '[', ' '])
        .and_then(|end| name.get(..end))
        .unwrap_or(name);
    plain
        .rmatch_indices("::")
        .filter_map(|(end, _)| plain.get(..end))
        .filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the namespaces of names with and without brackets.
    #[test]
    fn namespaces_of_names() {
        let of = |name| namespaces(name).collect::<Vec<_>>();
        assert_eq!(of("app::parse::line"), ["app::parse", "app"]);
        assert_eq!(of("app::map<std::x>::y"), ["app"]);
        assert_eq!(of("main"), [""; 0]);
        assert_eq!(of("<app::Foo as app::Bar>::baz"), [""; 0]);
    }
}
