//! For people, in a terminal.

use std::io::Write;

use super::super::comparison::{ComparedRow, Comparison, RowVerdict, Verdict};
use super::super::judge::TOTAL;
use super::numbers::{bounds, change, cost, p_and_q, probability};
use super::{assurances, common, headline, reach};
use crate::error::Result;
use crate::text::Columns;

/// Functions without a change that are shown.
const MOST_SAME: usize = 10;

/// Write it; with `all` every function that was judged.
pub fn write_text(
    comparison: &Comparison,
    all: bool,
    columns: Columns,
    out: &mut dyn Write,
) -> Result<()> {
    write_head(comparison, out)?;
    let same = if all { usize::MAX } else { MOST_SAME };
    let changed = comparison
        .rows
        .iter()
        .filter(|row| row.verdict != RowVerdict::Same);
    let rows: Vec<&ComparedRow> = [&comparison.total]
        .into_iter()
        .chain(changed)
        .chain(comparison.with(RowVerdict::Same).take(same))
        .collect();
    let cells = |row: &&ComparedRow| {
        let [base, new] = row.cost.map(|value| cost(comparison, value));
        let (_, q) = p_and_q(row);
        [
            verdict(comparison, row).to_owned(),
            change(row),
            bounds(row),
            base,
            new,
            probability(q),
        ]
    };
    let table: Vec<[String; 6]> = rows.iter().map(cells).collect();
    write_rows(&rows, &table, columns, out)?;
    let left = comparison.count(RowVerdict::Same).saturating_sub(same);
    if left > 0 {
        writeln!(
            out,
            "# and {left} more that did not change; --all shows them"
        )?;
    }
    Ok(())
}

/// The table, its columns as wide as they must be.
fn write_rows(
    rows: &[&ComparedRow],
    table: &[[String; 6]],
    columns: Columns,
    out: &mut dyn Write,
) -> Result<()> {
    let head = ["verdict", "change", "90 % bounds", "base", "new", "q"];
    let width = |column: usize| {
        let lengths = table
            .iter()
            .filter_map(|cells| Some(cells.get(column)?.chars().count()));
        lengths
            .max()
            .unwrap_or(0)
            .max(head.get(column).map_or(0, |head| head.chars().count()))
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String], what: &str| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let cell = if column == 0 {
                format!("{cell:<width$}  ")
            } else {
                format!("{cell:>width$}  ")
            };
            line.push_str(&cell);
        }
        line + what
    };
    writeln!(
        out,
        "{}",
        columns.fit(&line(&head.map(str::to_owned), "function"))
    )?;
    for (row, cells) in rows.iter().zip(table) {
        writeln!(out, "{}", columns.fit(&line(cells, &what(row))))?;
    }
    Ok(())
}

/// The outcome and how sure it is.
fn write_head(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "# {}", headline(comparison))?;
    if comparison.verdict == Verdict::Inconclusive {
        for reason in comparison.reasons.iter().skip(1) {
            writeln!(out, "#   {reason}")?;
        }
    }
    if let Some(common) = common(comparison) {
        writeln!(out, "# {common}")?;
    }
    writeln!(out, "# {}", reach(comparison))?;
    for line in assurances(comparison) {
        writeln!(out, "# {line}")?;
    }
    for note in &comparison.notes {
        writeln!(out, "# {note}")?;
    }
    for renamed in &comparison.renamed {
        let how = if comparison.renames_accepted {
            "renamed"
        } else {
            "renamed?"
        };
        writeln!(
            out,
            "# {how} {} -> {} (score {:.2})",
            renamed.from, renamed.to, renamed.score
        )?;
    }
    Ok(())
}

fn verdict(comparison: &Comparison, row: &ComparedRow) -> &'static str {
    let is_total = row.name == TOTAL;
    if is_total && !comparison.total_judged {
        "not judged"
    } else {
        row.verdict.name()
    }
}

/// What a row is.
fn what(row: &ComparedRow) -> String {
    let mut what = row.shown();
    if !row.module.is_empty() && !what.starts_with('[') {
        what.push_str("  ");
        what.push_str(&row.module);
    }
    if let Some(why) = &row.why {
        what.push_str(&format!("  ({why})"));
    }
    what
}
