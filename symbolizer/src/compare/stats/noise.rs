//! How much rates differ from run to run without a change: a trend over all functions.
//!
//! Of a function whose mean rate is μ under exposure ē (the harmonic mean), chance alone gives the variance v0 = μ/ē.
//! What is seen is larger: E[s²/v0] = ψ + φ·ē·μ. ψ ≥ 1 stands for ticks of one run that depend on each other, φ ≥ 0 for
//! runs that differ, as the square of their coefficient of variation. Without ψ the same test raised 10 to 23 % false
//! alarms on ticks that come in clumps of ten.

/// Rounds of reweighting; four change nothing any more.
const ROUNDS: usize = 6;

/// What was counted of one function: for each side the samples of each run.
#[derive(Clone, Copy, Debug)]
pub struct Item<'c> {
    /// Samples of the runs of either side, base first.
    pub counts: [&'c [f64]; 2],
}

/// Rates of one function: its means, and what its runs differ by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Mean rate of either side, base first.
    pub means: [f64; 2],
    /// Mean rate of all runs.
    pub pooled: f64,
    /// Variance of the rates within sides.
    pub variance: f64,
    /// Variance by chance alone.
    pub floor: f64,
    /// Mean count that is expected of a run.
    pub expected: f64,
}

/// What noise is like in these runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Factor on the variance by chance: ticks that depend on each other.
    pub psi: f64,
    /// Square of the coefficient of variation from run to run.
    pub phi: f64,
    /// Degrees of freedom of the variances that it was learned from, of one function.
    pub freedom: f64,
    /// Number of functions that it was learned from.
    pub functions: usize,
}

impl Moments {
    /// The moments of `item` under the exposures of its runs, each above 0.
    pub fn of(item: &Item<'_>, exposures: [&[f64]; 2]) -> Self {
        let mut rates = [Vec::new(), Vec::new()];
        for (side, (counts, exposures)) in rates.iter_mut().zip(item.counts.iter().zip(exposures)) {
            side.extend(
                counts
                    .iter()
                    .zip(exposures)
                    .map(|(count, exposure)| count / exposure),
            );
        }
        let [base, new] = &rates;
        let means = [mean(base), mean(new)];
        let runs = base.len() + new.len();
        let pooled = (base.iter().sum::<f64>() + new.iter().sum::<f64>()) / runs.max(1) as f64;
        let squares =
            |side: &[f64], mean: f64| side.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        let squares = squares(base, means[0]) + squares(new, means[1]);
        let freedom = freedom(exposures);
        let exposure = harmonic_mean(exposures);
        Self {
            means,
            pooled,
            variance: if freedom > 0.0 {
                squares / freedom
            } else {
                0.0
            },
            floor: pooled / exposure,
            expected: pooled * exposure,
        }
    }
}

impl Noise {
    /// Learn the trend from `family`; `freedom` as from [`freedom`].
    pub fn of(family: &[Moments], freedom: f64) -> Self {
        let usable = || family.iter().filter(|moments| moments.floor > 0.0);
        let mut noise = Self {
            psi: 1.0,
            phi: 0.0,
            freedom,
            functions: usable().count(),
        };
        if freedom <= 0.0 {
            return noise;
        }
        let points: Vec<(f64, f64)> = usable()
            .map(|moments| (moments.expected, moments.variance / moments.floor))
            .collect();
        for _ in 0..ROUNDS {
            let weight = |x: f64| (noise.psi + noise.phi * x).powi(-2);
            (noise.psi, noise.phi) = line(points.iter().map(|&(x, y)| (x, y, weight(x))));
        }
        noise
    }

    /// The variance of rates that the trend expects of a function.
    pub fn expected(&self, moments: &Moments) -> f64 {
        moments.floor * (self.psi + self.phi * moments.expected)
    }

    /// The larger of two noises, part by part: what is known from elsewhere may only make a verdict more careful.
    pub fn at_least(self, other: &Self) -> Self {
        Self {
            psi: self.psi.max(other.psi),
            phi: self.phi.max(other.phi),
            ..self
        }
    }
}

/// Degrees of freedom of a variance within sides.
pub fn freedom(exposures: [&[f64]; 2]) -> f64 {
    let of = |side: &[f64]| side.len().saturating_sub(1);
    exposures.iter().map(|side| of(side)).sum::<usize>() as f64
}

/// Weighted least squares for y = a + b·x with a ≥ 1 and b ≥ 0.
fn line(points: impl Iterator<Item = (f64, f64, f64)>) -> (f64, f64) {
    let [mut w, mut wx, mut wy, mut wxx, mut wxy] = [0.0; 5];
    for (x, y, weight) in points {
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    if w <= 0.0 {
        return (1.0, 0.0);
    }
    let determinant = w * wxx - wx * wx;
    let slope = if determinant > 1e-12 * w * wxx {
        (w * wxy - wx * wy) / determinant
    } else {
        0.0
    };
    if slope <= 0.0 {
        return ((wy / w).max(1.0), 0.0);
    }
    let level = (wy - slope * wx) / w;
    if level >= 1.0 {
        return (level, slope);
    }
    (1.0, ((wxy - wx) / wxx).max(0.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn harmonic_mean(exposures: [&[f64]; 2]) -> f64 {
    let all = || exposures.into_iter().flatten();
    let count = all().count().max(1) as f64;
    count / all().map(|exposure| exposure.recip()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check means, variance within sides, floor and expectation against numbers worked out by hand.
    #[test]
    fn moments_by_hand() {
        let item = Item {
            counts: [&[10.0, 14.0], &[40.0, 48.0]],
        };
        let moments = Moments::of(&item, [&[1.0, 1.0], &[2.0, 2.0]]);
        assert_eq!(moments.means, [12.0, 22.0]);
        assert_eq!(moments.variance, (4.0 + 4.0 + 4.0 + 4.0) / 2.0);
        let exposure = 4.0 / 3.0;
        assert!((moments.pooled - 17.0).abs() < 1e-12);
        assert!((moments.floor - 17.0 / exposure).abs() < 1e-12);
        assert!((moments.expected - 17.0 * exposure).abs() < 1e-12);
    }

    /// Check that a trend without scatter is found again, and that its bounds hold where data lie below them.
    #[test]
    fn exact_trend() {
        let family = |psi: f64, phi: f64| -> Vec<Moments> {
            let of = |x: f64| Moments {
                floor: 1.0,
                expected: x,
                variance: psi + phi * x,
                ..Moments::default()
            };
            (1..200).map(|x| of(f64::from(x))).collect()
        };
        let found = Noise::of(&family(2.5, 0.01), 8.0);
        assert!(
            (found.psi - 2.5).abs() < 1e-6 && (found.phi - 0.01).abs() < 1e-8,
            "{found:?}"
        );
        let quiet = Noise::of(&family(0.5, 0.0), 8.0);
        assert_eq!((quiet.psi, quiet.phi), (1.0, 0.0));
        let falling = Noise::of(&family(3.0, -0.001), 8.0);
        assert!(falling.phi == 0.0 && falling.psi > 2.5, "{falling:?}");
        let none = Noise::of(&[], 8.0);
        assert_eq!((none.psi, none.phi), (1.0, 0.0));
    }
}
