//! Every number behind one row.

use std::collections::BTreeMap;
use std::io::Write;

use super::super::comparison::{ComparedRow, Comparison};
use super::super::functions::Functions;
use super::super::judge::TOTAL;
use super::super::scale::mean_rates;
use super::super::sides::NAMES;
use super::numbers::{bounds, change, cost, probability};
use crate::error::Result;

/// Write what is behind the rows whose name is, or else holds, `wanted`; gives whether there is any. `lines` has the same
/// samples by line.
pub fn write_explanation(
    comparison: &Comparison,
    lines: &Functions,
    wanted: &str,
    out: &mut dyn Write,
) -> Result<bool> {
    let all = || [&comparison.total].into_iter().chain(&comparison.rows);
    let is_exact = |row: &&ComparedRow| row.name == wanted || row.shown() == wanted;
    let exact: Vec<&ComparedRow> = all().filter(is_exact).collect();
    let rows = if exact.is_empty() {
        all().filter(|row| row.shown().contains(wanted)).collect()
    } else {
        exact
    };
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one(comparison, row, out)?;
        if row.line.is_none() {
            write_lines(comparison, lines, row, out)?;
        }
    }
    Ok(!rows.is_empty())
}

fn one(comparison: &Comparison, row: &ComparedRow, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}  {}", row.shown(), row.module)?;
    let [base, new] = row.cost.map(|value| cost(comparison, value));
    writeln!(
        out,
        "  {}: {base} -> {new}, {} (90 %: {})",
        row.verdict.name(),
        change(row),
        bounds(row)
    )?;
    if let Some(why) = &row.why {
        writeln!(out, "  {why}")?;
    }
    for (name, (counts, exposures)) in NAMES
        .iter()
        .zip(row.counts.iter().zip(&comparison.exposures))
    {
        let one = row.unit.round();
        writeln!(
            out,
            "  {name}: counts x, exposures e, rates x/e (one count is {one} {})",
            comparison.unit
        )?;
        for (count, exposure) in counts.iter().zip(exposures) {
            writeln!(
                out,
                "    x {count:>12.1}   e {exposure:>12.4}   r {:>14.6}",
                count / exposure
            )?;
        }
    }
    for (what, value) in variances(comparison, row)
        .into_iter()
        .chain(levels(comparison, row))
    {
        writeln!(out, "  {what:<38} {value}")?;
    }
    Ok(())
}

/// The function's lines with the cost of each on both sides, counted from its declaration, so that what stands above the
/// function moves none.
fn write_lines(
    comparison: &Comparison,
    lines: &Functions,
    row: &ComparedRow,
    out: &mut dyn Write,
) -> Result<()> {
    let renamed = comparison.renamed.iter();
    let old = renamed.filter(|renamed| comparison.renames_accepted && renamed.to == row.name);
    let names: Vec<&str> = [row.name.as_str()]
        .into_iter()
        .chain(old.map(|renamed| renamed.from.as_str()))
        .collect();
    let exposures = [&comparison.exposures[0][..], &comparison.exposures[1][..]];
    let mut costs: BTreeMap<Option<i64>, [f64; 2]> = BTreeMap::new();
    for (number, (key, facts)) in lines.keys.iter().zip(&lines.facts).enumerate() {
        let is_here = names.contains(&key.name.as_str())
            && key.kernel == row.kernel
            && facts.declared == row.declared
            && key
                .module
                .as_ref()
                .is_none_or(|module| *module == row.module);
        if is_here {
            let rates = mean_rates(lines.row(number, comparison.inclusive), exposures);
            let sums = costs.entry(key.line).or_default();
            *sums = [sums[0] + rates[0], sums[1] + rates[1]];
        }
    }
    costs.retain(|_, costs| costs.iter().any(|cost| *cost > 0.0));
    if costs.keys().all(Option::is_none) {
        return Ok(());
    }
    writeln!(out, "  lines, counted from the declaration: base -> new")?;
    for (line, costs) in costs {
        let line = line.map_or_else(|| "elsewhere".to_owned(), |line| format!("{line:+}"));
        let [base, new] = costs.map(|value| cost(comparison, value));
        writeln!(out, "    {line:<9} {base:>12} -> {new:>12}")?;
    }
    Ok(())
}

type Line = (&'static str, String);

/// How the standard error comes about.
fn variances(comparison: &Comparison, row: &ComparedRow) -> Vec<Line> {
    let (tested, noise) = (&row.tested, &comparison.noise);
    let moments = &tested.moments;
    let variation = noise.phi.sqrt() * 100.0;
    vec![
        (
            "means of the rates, base and new",
            format!("{:.6}, {:.6}", moments.means[0], moments.means[1]),
        ),
        ("mean of all rates μ", format!("{:.6}", moments.pooled)),
        (
            "expected count of a run ē·μ",
            format!("{:.2}", moments.expected),
        ),
        (
            "variance by chance v0 = μ/ē",
            format!("{:.6e}", moments.floor),
        ),
        (
            "variance within sides s²",
            format!("{:.6e}", moments.variance),
        ),
        (
            "noise ψ, φ (of all functions)",
            format!(
                "{:.4}, {:.3e}, from {} of them; φ is a CV of {variation:.1} %",
                noise.psi, noise.phi, noise.functions
            ),
        ),
        (
            "variance of the trend v0·(ψ + φ·ē·μ)",
            format!("{:.6e}", tested.expected_variance),
        ),
        ("moderated variance", format!("{:.6e}", tested.variance)),
        ("degrees of freedom", format!("{}", tested.freedom)),
        (
            "standard error of the difference",
            format!("{:.6}", tested.error),
        ),
    ]
}

/// How the verdict follows from it.
fn levels(comparison: &Comparison, row: &ComparedRow) -> Vec<Line> {
    let tested = &row.tested;
    let mut lines = vec![
        ("margin δ", format!("{:.6}", tested.margin)),
        (
            "t up, t down",
            format!("{:.3}, {:.3}", tested.t_up, tested.t_down),
        ),
        (
            "p up, p down",
            format!(
                "{}, {}",
                probability(tested.p_up),
                probability(tested.p_down)
            ),
        ),
    ];
    if row.name == TOTAL {
        let judged = if comparison.total_judged {
            "judged at"
        } else {
            "not judged; else at"
        };
        lines.push(("level", format!("{judged} α = {}", comparison.alpha)));
    } else {
        let (up, down) = (probability(row.q_up), probability(row.q_down));
        lines.push((
            "q up, q down",
            format!("{up}, {down}; told at q ≤ {}", comparison.q),
        ));
    }
    let reach = tested.detectable(comparison.alpha.min(comparison.q)) / tested.moments.means[0];
    if reach.is_finite() {
        lines.push((
            "rise found in 4 of 5 comparisons alone",
            format!("{:.1} %", reach * 100.0),
        ));
    }
    lines
}
