//! One function's test: is its cost higher by more than a margin that matters.

use super::noise::{Moments, Noise};
use super::student::{above, quantile};

/// Power that the smallest effect which can be seen is stated for.
const POWER: f64 = 0.8;

/// Differences below it do not matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// As a part of the function's own cost.
    pub of_own: f64,
    /// As a part of the total cost.
    pub of_total: f64,
}

impl Margin {
    /// In the unit of rates.
    pub fn rate(&self, own: f64, total: f64) -> f64 {
        (self.of_own * own).max(self.of_total * total)
    }
}

/// A difference with all that it was judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// Rates.
    pub moments: Moments,
    /// Variance of rates that the trend expects.
    pub expected_variance: f64,
    /// Moderated variance of rates: the mean of what is seen and what is expected, of the total what is seen; and at least
    /// that of chance.
    pub variance: f64,
    /// Degrees of freedom of it.
    pub freedom: f64,
    /// Standard error of the difference of the means.
    pub error: f64,
    /// Margin.
    pub margin: f64,
    /// How far beyond the margin it went up, in standard errors.
    pub t_up: f64,
    /// How far beyond the margin it went down.
    pub t_down: f64,
    /// Probability of as high a `t_up` where the cost went up by no more than the margin.
    pub p_up: f64,
    /// The same downwards.
    pub p_down: f64,
}

impl Tested {
    /// Judge `moments` of `runs` of either side, those of a function.
    ///
    /// Variances within sides that are no more than one run each say nothing: then the trend, learned from other runs,
    /// stands alone.
    pub fn of(moments: Moments, noise: &Noise, runs: [usize; 2], margin: f64) -> Self {
        // What other functions say of the trend counts as much as what the runs say of this one.
        let freedom = if has_variance(runs) {
            2.0 * noise.freedom
        } else {
            noise.freedom
        };
        let expected = noise.expected(&moments);
        let variance = if has_variance(runs) {
            (expected + moments.variance) / 2.0
        } else {
            expected
        };
        Self::with_variance(moments, runs, (expected, variance, freedom), margin)
    }

    /// Judge `moments` of the total cost: by its own runs alone, where there are several.
    ///
    /// A run that is slow as a whole is slow in all functions, so of the total the trend says nothing that the runs do
    /// not say themselves: with the degrees of freedom of both, 13 of 600 comparisons of equal builds raised an alarm
    /// at a level of 1 % (3 runs, CV 5 %). And functions that vary by themselves cancel out in it: with the trend's
    /// variance a total that rose by 45 % in a real recording, beyond all of its runs, was none.
    pub fn of_total(moments: Moments, noise: &Noise, runs: [usize; 2], margin: f64) -> Self {
        let expected = noise.expected(&moments);
        let variance = if has_variance(runs) {
            moments.variance
        } else {
            expected
        };
        Self::with_variance(moments, runs, (expected, variance, noise.freedom), margin)
    }

    fn with_variance(
        moments: Moments,
        runs: [usize; 2],
        (expected, variance, freedom): (f64, f64, f64),
        margin: f64,
    ) -> Self {
        let variance = variance.max(moments.floor);
        let parts: f64 = runs.iter().map(|&count| 1.0 / count.max(1) as f64).sum();
        let error = (variance * parts).sqrt();
        let [base, new] = moments.means;
        let t = |change: f64| {
            if error > 0.0 {
                (change - margin) / error
            } else {
                f64::NEG_INFINITY
            }
        };
        let (t_up, t_down) = (t(new - base), t(base - new));
        Self {
            moments,
            expected_variance: expected,
            variance,
            freedom,
            error,
            margin,
            t_up,
            t_down,
            p_up: above(t_up, freedom),
            p_down: above(t_down, freedom),
        }
    }

    /// Change of the mean rate.
    pub fn change(&self) -> f64 {
        self.moments.means[1] - self.moments.means[0]
    }

    /// Bounds of the change, each exceeded with probability `p`.
    pub fn bounds(&self, p: f64) -> (f64, f64) {
        let reach = quantile(p, self.freedom) * self.error;
        (self.change() - reach, self.change() + reach)
    }

    /// The smallest rise, in the unit of rates, that a test at level `alpha` finds in four of five comparisons.
    pub fn detectable(&self, alpha: f64) -> f64 {
        let reach = quantile(alpha, self.freedom) + quantile(1.0 - POWER, self.freedom);
        self.margin + reach * self.error
    }
}

/// Whether any side has runs that can differ from one another.
fn has_variance(runs: [usize; 2]) -> bool {
    runs.iter().any(|&count| count > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(base: f64, new: f64, variance: f64) -> Moments {
        Moments {
            means: [base, new],
            pooled: (base + new) / 2.0,
            variance,
            floor: 1.0,
            expected: 100.0,
        }
    }

    const NOISE: Noise = Noise {
        psi: 1.0,
        phi: 0.03,
        freedom: 8.0,
        functions: 100,
    };

    /// Check the moderated variance, its floor, the error, t and p against numbers worked out by hand.
    #[test]
    fn by_hand() {
        let tested = Tested::of(moments(100.0, 110.0, 6.0), &NOISE, [5, 5], 2.0);
        assert_eq!(
            (tested.expected_variance, tested.variance, tested.freedom),
            (4.0, 5.0, 16.0)
        );
        assert!((tested.error - 2f64.sqrt()).abs() < 1e-12);
        assert!((tested.t_up - 8.0 / 2f64.sqrt()).abs() < 1e-12);
        assert!((tested.t_down + 12.0 / 2f64.sqrt()).abs() < 1e-12);
        assert!(tested.p_up < 1e-4 && tested.p_down > 0.999);
        let calm = Noise { phi: 0.0, ..NOISE };
        assert_eq!(
            Tested::of(moments(1.0, 1.0, 0.0), &calm, [5, 5], 0.0).variance,
            1.0
        );
    }

    /// Check that one run a side is judged by the trend alone, and that nothing counted is no difference.
    #[test]
    fn one_run_and_none() {
        let tested = Tested::of(moments(100.0, 110.0, 0.0), &NOISE, [1, 1], 0.0);
        assert_eq!((tested.variance, tested.freedom), (4.0, 8.0));
        let nothing = Tested::of(Moments::default(), &NOISE, [5, 5], 0.0);
        assert!(nothing.p_up >= 1.0 && nothing.p_down >= 1.0);
    }

    /// Check that bounds lie around the change and that what can be seen is beyond the margin.
    #[test]
    fn bounds_and_reach() {
        let tested = Tested::of(moments(100.0, 110.0, 4.0), &NOISE, [5, 5], 2.0);
        let (low, high) = tested.bounds(0.05);
        assert!(low < 10.0 && high > 10.0 && (low + high - 20.0).abs() < 1e-9);
        assert!(tested.detectable(0.01) > tested.detectable(0.05));
        assert!(tested.detectable(0.05) > 2.0);
    }
}
