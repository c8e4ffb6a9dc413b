//! Many tests at once: the share of false ones among those that are told is bounded (Benjamini and Hochberg, 1995).

/// For each probability of `p` the smallest rate of false discoveries at which it would be told, in the same order.
pub fn adjusted(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = p.iter().copied().zip(0..).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let all = p.len() as f64;
    let mut least = 1.0_f64;
    let mut q = vec![1.0; p.len()];
    for (rank, &(probability, place)) in (1..=p.len()).rev().zip(&order) {
        least = least.min(probability * all / rank as f64);
        if let Some(slot) = q.get_mut(place) {
            *slot = least;
        }
    }
    q
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check against R's p.adjust(c(0.01, 0.04, 0.03, 0.005, 1), "BH"), and that the order of equal ones is kept.
    #[test]
    fn as_r_does() {
        let q = adjusted(&[0.01, 0.04, 0.03, 0.005, 1.0]);
        let wanted = [0.025, 0.05, 0.05, 0.025, 1.0];
        assert!(
            q.iter()
                .zip(wanted)
                .all(|(q, wanted)| (q - wanted).abs() < 1e-12),
            "{q:?}"
        );
        assert_eq!(adjusted(&[]), Vec::<f64>::new());
        assert_eq!(adjusted(&[0.5, 0.5]), [0.5, 0.5]);
    }
}
