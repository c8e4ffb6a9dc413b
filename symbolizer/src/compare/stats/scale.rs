//! Runs of unequal length without a declared work: how long each was, told by what most functions have in common.

/// For each run how much it counted compared with the mean of all runs: the median over functions, in which each counts
/// as much as it was sampled. `counts` has for each function the samples of all runs. A function that changed is one of
/// many, so unlike the share of a total this does not make the others look changed.
pub fn size_factors(counts: &[&[f64]], runs: usize) -> Vec<f64> {
    let means = counts
        .iter()
        .map(|of_runs| of_runs.iter().sum::<f64>() / runs.max(1) as f64);
    let means: Vec<f64> = means.collect();
    let of_run = |run: usize| {
        let ratios = counts.iter().zip(&means).filter(|(_, mean)| **mean > 0.0);
        let ratios =
            ratios.map(|(of_runs, &mean)| (of_runs.get(run).copied().unwrap_or(0.0) / mean, mean));
        weighted_median(ratios.collect())
    };
    (0..runs).map(of_run).collect()
}

/// The value that has half of the weight below it; 1 where there is none. Never 0: a run is never nothing.
fn weighted_median(mut values: Vec<(f64, f64)>) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for (value, weight) in &values {
        below += weight;
        if below >= half && *value > 0.0 {
            return *value;
        }
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a run twice as long counts twice, although one function became three times as heavy in it.
    #[test]
    fn one_changed_function() {
        let counts: [&[f64]; 4] = [
            &[100.0, 600.0],
            &[100.0, 200.0],
            &[90.0, 180.0],
            &[80.0, 160.0],
        ];
        let factors = size_factors(&counts, 2);
        assert!((factors[1] / factors[0] - 2.0).abs() < 0.05, "{factors:?}");
        assert_eq!(size_factors(&[], 2), [1.0, 1.0]);
    }
}
