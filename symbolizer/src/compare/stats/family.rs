//! All functions of a comparison together: which are tested at all, what noise is like, and which changes are told.

use super::adjust::adjusted;
use super::noise::{Item, Moments, Noise, freedom};
use super::test::{Margin, Tested};

/// How strictly to judge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strictness {
    /// Differences below it do not matter.
    pub margin: Margin,
    /// Share of false ones among the functions that are told.
    pub q: f64,
    /// Probability of a false alarm about the total.
    pub alpha: f64,
    /// Samples of a run, in the mean, below which a function is not tested.
    pub least_samples: f64,
    /// The same as a part of all samples of a run.
    pub least_share: f64,
}

impl Default for Strictness {
    fn default() -> Self {
        Self {
            margin: Margin {
                of_own: 0.02,
                of_total: 0.001,
            },
            q: 0.05,
            alpha: 0.01,
            least_samples: 5.0,
            least_share: 0.001,
        }
    }
}

/// Counts of a comparison.
#[derive(Clone, Debug)]
pub struct Counts<'c> {
    /// Functions.
    pub items: Vec<Item<'c>>,
    /// For each function what one count stands for, in the unit of costs.
    pub units: Vec<f64>,
    /// For each function the margin below which a difference does not matter.
    pub margins: Vec<Margin>,
    /// All samples together.
    pub total: Item<'c>,
    /// What one count of it stands for.
    pub total_unit: f64,
    /// Exposure of each run of either side, above 0.
    pub exposures: [&'c [f64]; 2],
}

/// A judged comparison.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What noise is like.
    pub noise: Noise,
    /// For each function its test.
    pub functions: Vec<Tested>,
    /// Whether a function has samples enough to be judged: independent of which side they are on.
    pub is_member: Vec<bool>,
    /// For each function the rate of false discoveries at which its rise would be told; 1 where it is not tested.
    pub q_up: Vec<f64>,
    /// The same for its fall.
    pub q_down: Vec<f64>,
    /// The test of the total.
    pub total: Tested,
    /// How strictly it was judged.
    pub strictness: Strictness,
}

impl Judged {
    /// Judge `counts`. `known` is what noise is known to be from elsewhere; the more careful of both counts, and with
    /// one run a side it stands alone.
    pub fn of(counts: &Counts<'_>, strictness: &Strictness, known: Option<&Noise>) -> Self {
        let exposures = counts.exposures;
        let moments: Vec<Moments> = counts
            .items
            .iter()
            .map(|item| Moments::of(item, exposures))
            .collect();
        let total = Moments::of(&counts.total, exposures);
        let runs = [exposures[0].len(), exposures[1].len()];
        let is_member = members(counts, strictness);
        let family: Vec<Moments> = moments
            .iter()
            .zip(&is_member)
            .filter_map(|(moments, &is_member)| is_member.then_some(*moments))
            .collect();
        let own = Noise::of(&family, freedom(exposures));
        let noise = match known {
            Some(known) if own.freedom <= 0.0 => *known,
            Some(known) => own.at_least(known),
            None => own,
        };
        let base = total.means[0] * counts.total_unit;
        let margin =
            |margin: &Margin, own: &Moments, unit: f64| margin.rate(own.means[0], base / unit);
        let functions: Vec<Tested> = moments
            .iter()
            .zip(counts.units.iter().zip(&counts.margins))
            .map(|(moments, (&unit, own))| {
                Tested::of(*moments, &noise, runs, margin(own, moments, unit))
            })
            .collect();
        let q = |p: &dyn Fn(&Tested) -> f64| spread(&functions, &is_member, p);
        Self {
            noise,
            q_up: q(&|tested| tested.p_up),
            q_down: q(&|tested| tested.p_down),
            total: Tested::of_total(
                total,
                &noise,
                runs,
                margin(&strictness.margin, &total, counts.total_unit),
            ),
            functions,
            is_member,
            strictness: *strictness,
        }
    }

    /// Whether function number `item` went up, as far as `strictness` asks.
    pub fn is_up(&self, item: usize, strictness: &Strictness) -> bool {
        self.q_up.get(item).is_some_and(|&q| q <= strictness.q)
    }

    /// Whether function number `item` went down.
    pub fn is_down(&self, item: usize, strictness: &Strictness) -> bool {
        self.q_down.get(item).is_some_and(|&q| q <= strictness.q)
    }
}

/// Which functions are tested: by the mean count of all runs of both sides, which says nothing of a difference.
fn members(counts: &Counts<'_>, strictness: &Strictness) -> Vec<bool> {
    let runs = counts.exposures[0].len() + counts.exposures[1].len();
    let mean =
        |item: &Item<'_>| item.counts.iter().copied().flatten().sum::<f64>() / runs.max(1) as f64;
    let least = (strictness.least_share * mean(&counts.total)).max(strictness.least_samples);
    counts
        .items
        .iter()
        .map(|item| mean(item) >= least)
        .collect()
}

/// Rates of false discoveries of the members, 1 for the others.
fn spread(functions: &[Tested], is_member: &[bool], p: &dyn Fn(&Tested) -> f64) -> Vec<f64> {
    let members = || {
        functions
            .iter()
            .zip(is_member)
            .filter(|(_, is_member)| **is_member)
    };
    let probabilities: Vec<f64> = members().map(|(tested, _)| p(tested)).collect();
    let mut adjusted = adjusted(&probabilities).into_iter();
    let of = |&is_member: &bool| is_member.then(|| adjusted.next()).flatten().unwrap_or(1.0);
    is_member.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function twice as heavy is told and no other, that what is rare is not tested, and that runs of
    /// twice the work count half.
    #[test]
    fn one_change_among_many() {
        let near = |mean: f64, salt: u32| -> Vec<f64> {
            let wobble = |run: u32| f64::from((run * 7 + salt * 13) % 11) - 5.0;
            (0..5)
                .map(|run| mean + wobble(run) * mean.sqrt() / 5.0)
                .collect()
        };
        let base: Vec<Vec<f64>> = (0..40).map(|f| near(1000.0 - f64::from(f), f)).collect();
        let mut new: Vec<Vec<f64>> = (0..40)
            .map(|f| near(2.0 * (1000.0 - f64::from(f)), f + 3))
            .collect();
        new[7].iter_mut().for_each(|count| *count *= 2.0);
        let rare = [vec![1.0; 5], vec![9.0; 5]];
        let total = |side: &[Vec<f64>]| -> Vec<f64> {
            (0..5)
                .map(|run| side.iter().map(|f| f[run]).sum())
                .collect()
        };
        let totals = [total(&base), total(&new)];
        let items = base.iter().zip(&new).map(|(base, new)| Item {
            counts: [base, new],
        });
        let rare = Item {
            counts: [&rare[0], &rare[1]],
        };
        let counts = Counts {
            items: items.chain([rare]).collect(),
            units: vec![1.0; 41],
            margins: vec![Strictness::default().margin; 41],
            total: Item {
                counts: [&totals[0], &totals[1]],
            },
            total_unit: 1.0,
            exposures: [&[1.0; 5], &[2.0; 5]],
        };
        let strictness = Strictness::default();
        let judged = Judged::of(&counts, &strictness, None);
        let up: Vec<usize> = (0..41)
            .filter(|&item| judged.is_up(item, &strictness))
            .collect();
        assert_eq!(up, [7]);
        assert!((0..41).all(|item| !judged.is_down(item, &strictness)));
        assert!(!judged.is_member[40] && judged.q_up[40] >= 1.0);
    }
}
