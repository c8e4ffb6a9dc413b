//! Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Probability that t with `df` degrees of freedom is `t` or more; 1 where nothing can be said.
pub(super) fn above(t: f64, df: f64) -> f64 {
    if t.is_nan() {
        return 1.0;
    }
    StudentsT::new(0.0, 1.0, df).map_or(1.0, |student| student.sf(t).clamp(0.0, 1.0))
}

/// The value that t exceeds with probability `p` (0 < p < 1); infinite where nothing can be said.
pub(super) fn quantile(p: f64, df: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, df);
    student.map_or(f64::INFINITY, |student| -student.inverse_cdf(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of printed tables of the distribution, both tails, and a tail far out against R's pt().
    #[test]
    fn tables() {
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 1e-4;
        assert!(near(above(1.8595, 8.0), 0.05), "{}", above(1.8595, 8.0));
        assert!(near(above(2.8965, 8.0), 0.01));
        assert!(near(above(-1.8595, 8.0), 0.95));
        assert!(near(above(10.0, 16.0), 1.373_4e-8), "{}", above(10.0, 16.0));
        assert!(near(quantile(0.05, 8.0), 1.859_548));
        assert!(near(quantile(0.2, 16.0), 0.864_667));
        assert!(above(f64::NAN, 8.0) >= 1.0 && above(1.0, 0.0) >= 1.0);
        assert!(above(f64::INFINITY, 8.0) <= 0.0);
    }
}
