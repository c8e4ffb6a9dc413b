//! Costs and changes as people read them.

use super::super::comparison::{ComparedRow, Comparison};
use super::super::settings::Basis;

/// A part in percent.
pub(super) fn percent(part: f64) -> String {
    if part.is_finite() {
        format!("{:.1} %", part * 100.0)
    } else {
        "any".to_owned()
    }
}

/// A cost in the comparison's unit.
pub(super) fn cost(comparison: &Comparison, value: f64) -> String {
    if comparison.basis == Basis::Share {
        return format!("{:.2} %", value * 100.0);
    }
    if comparison.unit != "ns" {
        return format!("{} {}", short(value), comparison.unit);
    }
    let steps = [
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "us"),
        (1.0, "ns"),
        (1e-3, "ps"),
    ];
    let (size, unit) = steps
        .into_iter()
        .find(|(size, _)| value >= *size)
        .unwrap_or((1.0, "ns"));
    format!("{} {unit}", short(value / size))
}

/// Four digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

/// The relative change.
pub(super) fn change(row: &ComparedRow) -> String {
    match row.relative() {
        _ if row.cost[1] <= 0.0 && row.cost[0] > 0.0 => "gone".to_owned(),
        Some(change) => format!("{:+.1} %", change * 100.0),
        None if row.cost[1] > 0.0 => "new".to_owned(),
        None => "none".to_owned(),
    }
}

/// The bounds of the relative change.
pub(super) fn bounds(row: &ComparedRow) -> String {
    let (low, high) = row.bounds();
    match row.cost[0] {
        base if base > 0.0 && low.is_finite() => {
            format!("{:+.1} … {:+.1} %", low / base * 100.0, high / base * 100.0)
        }
        _ => String::new(),
    }
}

/// The probability, and the rate of false discoveries, in the direction of the change.
pub(in crate::compare) fn p_and_q(row: &ComparedRow) -> (f64, f64) {
    if row.change() >= 0.0 {
        (row.tested.p_up, row.q_up)
    } else {
        (row.tested.p_down, row.q_down)
    }
}

/// A probability.
pub(super) fn probability(value: f64) -> String {
    if value < 1e-4 {
        "<0.0001".to_owned()
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers keep four digits, whatever their size.
    #[test]
    fn four_digits() {
        let shown = [0.0, 12_345.6, 123.45, 12.345, 1.2345, 0.012_34, 1e-5].map(short);
        assert_eq!(
            shown,
            ["0", "12346", "123.5", "12.35", "1.234", "0.012", "1.00e-5"]
        );
        assert_eq!(
            (percent(0.0123), percent(f64::INFINITY)),
            ("1.2 %".to_owned(), "any".to_owned())
        );
        assert_eq!(probability(1e-9), "<0.0001");
    }
}
