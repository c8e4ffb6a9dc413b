//! Moved cost in comparisons drawn with a fixed seed: how often moved code fails all the same, and how often a true rise
//! passes as moved.
//!
//! The functions are those of [`stats::simulation`](super::stats::simulation): five share a namespace, and all of a
//! namespace are called from one function of their own, so that moved cost stays within both.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::functions::{FunctionFacts, FunctionKey, FunctionStack, Functions};
use super::shift::{Yardstick, moved};
use super::stats::noise::Item;
use super::stats::simulation::{CALM, FUNCTIONS, World, shares};
use super::stats::{Counts, Judged, Strictness};

const TRIALS: usize = 200;
const NAMESPACES: usize = 80;

/// What became of the function that changed, of [`TRIALS`] comparisons.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Told as risen, before it is asked whether its cost moved.
    told: usize,
    /// Of these taken as moved.
    moved: usize,
}

impl Outcome {
    fn told(self) -> f64 {
        self.told as f64 / TRIALS as f64
    }

    /// Part of those that were told.
    fn moved(self) -> f64 {
        self.moved as f64 / self.told.max(1) as f64
    }
}

/// Compare pairs of which the new side has functions `changed` at a factor of their cost; tells of function `risen`.
fn compare(world: &World, changed: &[(usize, f64)], risen: usize) -> Outcome {
    let mut chance = ChaCha8Rng::seed_from_u64(world.seed);
    let strictness = Strictness::default();
    let exposures = vec![1.0; world.runs];
    let mut outcome = Outcome::default();
    for _ in 0..TRIALS {
        let sides = [
            world.side(&mut chance, &[]),
            world.side(&mut chance, changed),
        ];
        let functions = functions(&sides);
        let split = |row| <[f64]>::split_at(row, world.runs);
        let item = |row| {
            let (base, new) = split(row);
            Item {
                counts: [base, new],
            }
        };
        let counts = Counts {
            items: (0..FUNCTIONS)
                .map(|function| item(functions.row(function, false)))
                .collect(),
            units: vec![1.0; FUNCTIONS],
            margins: vec![strictness.margin; FUNCTIONS],
            total: item(&functions.all),
            total_unit: 1.0,
            exposures: [&exposures, &exposures],
        };
        let judged = Judged::of(&counts, &strictness, None);
        if !judged.is_up(risen, &strictness) {
            continue;
        }
        outcome.told += 1;
        let yardstick = Yardstick {
            exposures: [&exposures, &exposures],
            noise: &judged.noise,
            margin: strictness.margin,
            total: judged.total.moments.means[0],
            unit: 1.0,
        };
        let rise = judged.functions[risen].change();
        let found = moved(&functions, &[(risen, rise)], &yardstick);
        outcome.moved += usize::from(found[0].is_some());
    }
    outcome
}

/// Functions with the counts of both sides: function, the one that calls it, main.
fn functions(sides: &[Vec<Vec<f64>>; 2]) -> Functions {
    let runs = sides[0][0].len();
    let main = FUNCTIONS + NAMESPACES;
    let name = |number: usize| match number {
        _ if number == main => "main".to_owned(),
        _ if number >= FUNCTIONS => format!("drive{}", number - FUNCTIONS),
        _ => format!("m{}::f{number}", number % NAMESPACES),
    };
    let id = |number: usize| u32::try_from(number).unwrap();
    let stack = |function: usize| {
        let counts = sides.iter().flat_map(|side| &side[function]);
        let weights = (0u32..)
            .zip(counts)
            .map(|(column, &count)| (column, count, count));
        FunctionStack {
            functions: [function, FUNCTIONS + function % NAMESPACES, main]
                .map(id)
                .into(),
            weights: weights.collect(),
        }
    };
    let mut functions = Functions {
        keys: (0..=main)
            .map(|number| FunctionKey {
                name: name(number),
                ..FunctionKey::default()
            })
            .collect(),
        facts: vec![FunctionFacts::default(); main + 1],
        width: 2 * runs,
        first_new: runs,
        stacks: (0..FUNCTIONS).map(stack).collect(),
        ..Functions::default()
    };
    functions.add_up();
    functions
}

/// The worlds: runs and samples of each.
fn worlds() -> [World; 2] {
    [(5, 20_000.0), (8, 100_000.0)].map(|(runs, samples)| World {
        runs,
        samples,
        seed: 31,
        ..CALM
    })
}

/// Check that of code which moved within a namespace and was told, nearly all is taken as moved: half or all of a function,
/// into one of the tail.
#[test]
fn moved_code() {
    let shares = shares();
    for world in worlds() {
        for (rank, part) in [(0, 0.5), (3, 0.5), (3, 1.0), (19, 1.0)] {
            let into = rank + NAMESPACES;
            let gained = 1.0 + part * shares[rank] / shares[into];
            let outcome = compare(&world, &[(rank, 1.0 - part), (into, gained)], into);
            println!(
                "K={} N={} rank {} {:.0} % moved: told {:.2}, of these as moved {:.3}",
                world.runs,
                world.samples,
                rank + 1,
                part * 100.0,
                outcome.told(),
                outcome.moved()
            );
            assert!(
                outcome.told() > 0.5 && outcome.moved() >= 0.9,
                "{outcome:?}"
            );
        }
    }
}

/// Print how often code that costs a quarter more where it moved to passes as moved, and check that it seldom does where it
/// costs half as much again.
#[test]
fn moved_and_grown() {
    let shares = shares();
    for world in worlds() {
        for (rank, grown) in [(0, 1.25), (3, 1.25), (0, 1.5), (3, 1.5)] {
            let into = rank + NAMESPACES;
            let gained = 1.0 + grown * 0.5 * shares[rank] / shares[into];
            let outcome = compare(&world, &[(rank, 0.5), (into, gained)], into);
            println!(
                "K={} N={} rank {} moved by half and x{grown}: told {:.2}, of these as moved {:.3}",
                world.runs,
                world.samples,
                rank + 1,
                outcome.told(),
                outcome.moved()
            );
            // A third of the rise is left: at the level of the bound, and three standard errors.
            assert!(grown < 1.5 || outcome.moved() <= 0.1, "{outcome:?}");
        }
    }
}

/// Check that a true rise hardly ever passes as moved: of one function alone, and of code that costs twice as much where it
/// moved to.
#[test]
fn true_rises() {
    let shares = shares();
    for world in worlds() {
        let alone = [(0, 1.2), (3, 1.2), (19, 1.5), (19, 2.0)]
            .map(|(rank, factor)| (vec![(rank, factor)], rank));
        let doubled = [(0, 0.5), (3, 0.5), (19, 1.0)].map(|(rank, part)| {
            let into = rank + NAMESPACES;
            let gained = 1.0 + 2.0 * part * shares[rank] / shares[into];
            (vec![(rank, 1.0 - part), (into, gained)], into)
        });
        for (changed, risen) in alone.into_iter().chain(doubled) {
            let outcome = compare(&world, &changed, risen);
            println!(
                "K={} N={} {changed:.2?}: told {:.2}, of these as moved {:.3}",
                world.runs,
                world.samples,
                outcome.told(),
                outcome.moved()
            );
            assert!(outcome.moved() <= 0.02, "{changed:?}: {outcome:?}");
        }
    }
}
