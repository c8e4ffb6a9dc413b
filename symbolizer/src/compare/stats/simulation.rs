//! Comparisons of builds that are the same, and of builds with a known change, drawn with a fixed seed.
//!
//! 400 functions share the samples of a run as Zipf's law says (exponent 1.1: 19.6 % for the first, 4.3 % for the
//! fourth, 0.7 % for the twentieth). Runs and functions vary lognormally; ticks come one by one or in clumps.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, Gamma, LogNormal, Poisson};

use super::family::{Counts, Judged, Strictness};
use super::noise::Item;
use super::test::Margin;

pub(in crate::compare) const FUNCTIONS: usize = 400;
const EXPONENT: f64 = 1.1;
/// Pairs of one cell.
const PAIRS: usize = 600;

/// What a simulated workload is like.
#[derive(Clone, Copy)]
pub(in crate::compare) struct World {
    pub(in crate::compare) runs: usize,
    /// Samples of a run.
    pub(in crate::compare) samples: f64,
    /// Coefficient of variation of runs.
    pub(in crate::compare) of_runs: f64,
    /// Of functions in a run: from the first value to the second, differently for each.
    pub(in crate::compare) of_functions: (f64, f64),
    /// Ticks in a clump, in the mean.
    pub(in crate::compare) dwell: f64,
    pub(in crate::compare) seed: u64,
}

pub(in crate::compare) const CALM: World = World {
    runs: 5,
    samples: 20_000.0,
    of_runs: 0.02,
    of_functions: (0.02, 0.02),
    dwell: 1.0,
    seed: 1,
};

/// What was found, of how many pairs.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    /// Pairs with any alarm, the total's included.
    alarms: usize,
    /// Pairs in which the total raised it.
    totals: usize,
    /// Pairs in which the changed function was told.
    hits: usize,
}

impl World {
    /// Compare pairs of which the second side has function `changed.0` at `changed.1` of its cost, each under every
    /// strictness.
    fn compare<const N: usize>(
        &self,
        pairs: usize,
        strictness: &[Strictness; N],
        changed: Option<(usize, f64)>,
    ) -> [Found; N] {
        let mut chance = ChaCha8Rng::seed_from_u64(self.seed);
        let mut found = [const {
            Found {
                alarms: 0,
                totals: 0,
                hits: 0,
            }
        }; N];
        let exposures = vec![1.0; self.runs];
        for _ in 0..pairs {
            let sides = [
                self.side(&mut chance, &[]),
                self.side(&mut chance, changed.as_slice()),
            ];
            let totals = sides.each_ref().map(|side| self.totals(side));
            let item = |function: usize| Item {
                counts: [&sides[0][function], &sides[1][function]],
            };
            let mut counts = Counts {
                items: (0..FUNCTIONS).map(item).collect(),
                units: vec![1.0; FUNCTIONS],
                margins: Vec::new(),
                total: Item {
                    counts: [&totals[0], &totals[1]],
                },
                total_unit: 1.0,
                exposures: [&exposures, &exposures],
            };
            for (found, strictness) in found.iter_mut().zip(strictness) {
                counts.margins = vec![strictness.margin; FUNCTIONS];
                let judged = Judged::of(&counts, strictness, None);
                let alarm = (0..FUNCTIONS).any(|function| judged.is_up(function, strictness));
                let total = judged.total.p_up <= strictness.alpha;
                found.alarms += usize::from(alarm || total);
                found.totals += usize::from(total);
                found.hits += usize::from(
                    changed.is_some_and(|(function, _)| judged.is_up(function, strictness)),
                );
            }
        }
        found
    }

    /// Samples by function and run; functions that changed with the factor of their cost.
    pub(in crate::compare) fn side(
        &self,
        chance: &mut ChaCha8Rng,
        changed: &[(usize, f64)],
    ) -> Vec<Vec<f64>> {
        let shares = shares();
        let mut counts = vec![vec![0.0; self.runs]; FUNCTIONS];
        let (least, most) = self.of_functions;
        #[expect(
            clippy::needless_range_loop,
            reason = "runs vary outside, functions inside"
        )]
        for run in 0..self.runs {
            let of_run = lognormal(self.of_runs).sample(chance);
            for (function, share) in shares.iter().enumerate() {
                let variation = least + (most - least) * (function % 7) as f64 / 6.0;
                let factor = changed
                    .iter()
                    .find(|(which, _)| *which == function)
                    .map_or(1.0, |(_, factor)| *factor);
                let mean =
                    self.samples * share * of_run * factor * lognormal(variation).sample(chance);
                counts[function][run] = self.count(chance, mean);
            }
        }
        counts
    }

    /// Ticks of a function: Poisson, or a Poisson number of clumps of geometric length.
    fn count(&self, chance: &mut ChaCha8Rng, mean: f64) -> f64 {
        let clumps = poisson(chance, mean / self.dwell);
        if self.dwell <= 1.0 || clumps <= 0.0 {
            return clumps;
        }
        // The sum of n geometric numbers is n and a Poisson number of a gamma-distributed mean.
        let beyond = Gamma::new(clumps, self.dwell - 1.0).unwrap().sample(chance);
        clumps + poisson(chance, beyond)
    }

    fn totals(&self, side: &[Vec<f64>]) -> Vec<f64> {
        (0..self.runs)
            .map(|run| side.iter().map(|function| function[run]).sum())
            .collect()
    }
}

/// Parts of the total that functions have in the mean, by rank.
pub(in crate::compare) fn shares() -> Vec<f64> {
    let weights = (1..=FUNCTIONS).map(|rank| (rank as f64).powf(-EXPONENT));
    let all: f64 = weights.clone().sum();
    weights.map(|weight| weight / all).collect()
}

fn poisson(chance: &mut ChaCha8Rng, mean: f64) -> f64 {
    Poisson::new(mean).map_or(0.0, |poisson| poisson.sample(chance))
}

fn lognormal(variation: f64) -> LogNormal<f64> {
    LogNormal::from_mean_cv(1.0, variation).unwrap()
}

fn with_margin(of_own: f64, of_total: f64) -> Strictness {
    Strictness {
        margin: Margin { of_own, of_total },
        ..Strictness::default()
    }
}

/// The worlds in which nothing changes: run CV of 3 to 5 %, functions that vary by 2 to 5 %, clumps of 10 and 30 ticks.
const SAME: [World; 6] = [
    World {
        runs: 3,
        of_runs: 0.03,
        of_functions: (0.02, 0.05),
        seed: 11,
        ..CALM
    },
    World {
        runs: 5,
        of_runs: 0.03,
        of_functions: (0.02, 0.05),
        seed: 12,
        ..CALM
    },
    World {
        runs: 8,
        samples: 100_000.0,
        of_runs: 0.05,
        of_functions: (0.02, 0.05),
        seed: 13,
        ..CALM
    },
    World {
        runs: 5,
        of_runs: 0.03,
        of_functions: (0.02, 0.05),
        dwell: 10.0,
        seed: 14,
        ..CALM
    },
    World {
        runs: 8,
        of_runs: 0.05,
        of_functions: (0.02, 0.05),
        dwell: 30.0,
        seed: 15,
        ..CALM
    },
    World {
        runs: 3,
        samples: 100_000.0,
        of_runs: 0.05,
        of_functions: (0.02, 0.05),
        dwell: 10.0,
        seed: 16,
    },
];

/// Check that of 600 comparisons of a build with itself, total and functions together, no more than the stated 6 % (and
/// three standard errors) raise an alarm without a margin, and one in a hundred with the default one; clumped ticks
/// included.
#[test]
fn same_builds() {
    for world in SAME {
        let [bare, usual] =
            world.compare(PAIRS, &[with_margin(0.0, 0.0), Strictness::default()], None);
        println!(
            "seed {}: of {PAIRS} without a margin {bare:?}, with it {usual:?}",
            world.seed
        );
        assert!(
            bare.alarms <= 54,
            "seed {}: {bare:?} without a margin",
            world.seed
        );
        assert!(
            usual.alarms <= 6,
            "seed {}: {usual:?} with the default margin",
            world.seed
        );
    }
}

/// Check that changes are found as often as the method promises: runs, samples, rank of the function, factor, and the
/// power under the default and the strict margin.
#[test]
fn power() {
    let cells: [(usize, f64, usize, f64, f64, f64); 7] = [
        (5, 20_000.0, 0, 1.1, 0.31, 0.08),
        (5, 20_000.0, 0, 1.2, 0.95, 0.91),
        (5, 20_000.0, 3, 1.2, 0.88, 0.72),
        (5, 20_000.0, 19, 1.5, 0.84, 0.17),
        (5, 20_000.0, 19, 2.0, 1.0, 1.0),
        (8, 100_000.0, 0, 1.1, 0.83, 0.23),
        (3, 20_000.0, 3, 1.2, 0.32, 0.15),
    ];
    const TRIALS: usize = 400;
    for (runs, samples, function, factor, usual, strict) in cells {
        let world = World {
            runs,
            samples,
            seed: 21,
            ..CALM
        };
        let strictness = [with_margin(0.02, 0.001), with_margin(0.05, 0.002)];
        let found = world.compare(TRIALS, &strictness, Some((function, factor)));
        for (found, wanted) in found.iter().zip([usual, strict]) {
            let power = found.hits as f64 / TRIALS as f64;
            println!(
                "K={runs} N={samples} rank {} x{factor}: {power:.2} (stated {wanted})",
                function + 1
            );
            // The stated figure was itself counted in as many trials.
            let error = (2.0 * wanted * (1.0 - wanted) / TRIALS as f64).sqrt();
            assert!(
                power >= wanted - 2.0 * error - 0.005,
                "rank {function} x{factor}: {power}, stated {wanted}"
            );
        }
    }
}
