//! A table as text, JSON and CSV.

use std::io::Write;

use super::table::{Table, TableRow};
use crate::error::Result;
use crate::text::Columns;

/// Leave out rows below `percent` of the total.
pub fn cut(table: &mut Table, percent: f64) {
    if percent > 0.0 {
        let total = table.total;
        table.rows.retain(|row| share(row.total, total) >= percent);
    }
}

/// Write one JSON object.
pub fn write_json(table: &Table, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, table)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Write CSV with a line of headings.
pub fn write_csv(table: &Table, out: &mut dyn Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["name", "module", "file", "line", "self", "total", "inlined"])?;
    for row in &table.rows {
        let line = row.line.map(|line| line.to_string()).unwrap_or_default();
        let (own, total) = (row.self_weight.to_string(), row.total.to_string());
        let inlined = if row.inlined { "true" } else { "false" };
        let file = row.file.as_deref().unwrap_or_default();
        csv.write_record([&row.name, &row.module, file, &line, &own, &total, inlined])?;
    }
    csv.flush()?;
    Ok(())
}

/// Write a table for people, lines cut to `columns`.
pub fn write_text(table: &Table, columns: Columns, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "# total {} in {} samples, by {}; percentages are of it",
        amount(table.total, &table.unit),
        table.samples,
        table.by
    )?;
    let weights = |row: &TableRow| {
        (
            amount(row.self_weight, &table.unit),
            amount(row.total, &table.unit),
        )
    };
    let lengths = table.rows.iter().map(|row| {
        let (own, total) = weights(row);
        own.chars().count().max(total.chars().count())
    });
    let width = lengths.max().unwrap_or(0).max(5);
    let head = format!(
        "{:>7}  {:>width$}  {:>7}  {:>width$}  {}",
        "self", "", "total", "", table.by
    );
    writeln!(out, "{}", columns.fit(&head))?;
    for row in &table.rows {
        let (own, total) = weights(row);
        let (own_share, total_share) = (
            share(row.self_weight, table.total),
            share(row.total, table.total),
        );
        let what = what(row);
        let line = format!(
            "{own_share:>6.2}%  {own:>width$}  {total_share:>6.2}%  {total:>width$}  {what}"
        );
        writeln!(out, "{}", columns.fit(&line))?;
    }
    Ok(())
}

/// What a row is: its name, its module and its place in the source.
fn what(row: &TableRow) -> String {
    let mut what = row.name.clone();
    if row.inlined {
        what.push_str(" (inlined)");
    }
    if !row.module.is_empty() && row.module != row.name {
        what.push_str("  ");
        what.push_str(row.module.rsplit('/').next().unwrap_or(&row.module));
    }
    if let (Some(file), Some(line)) = (&row.file, row.line) {
        what.push_str(&format!("  {file}:{line}"));
    }
    what
}

/// Share of the total in percent.
pub(super) fn share(part: u64, total: u64) -> f64 {
    if total == 0 {
        0.0
    } else {
        part as f64 * 100.0 / total as f64
    }
}

/// A number with its unit: times in the unit that suits them.
pub fn amount(number: u64, unit: &str) -> String {
    if unit != "ns" {
        return format!("{number} {unit}");
    }
    let seconds = number as f64 / 1e9;
    match number {
        0..1_000 => format!("{number} ns"),
        1_000..1_000_000 => format!("{:.1} us", number as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", number as f64 / 1e6),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times are told in the unit that suits them and other numbers as they are.
    #[test]
    fn amounts() {
        assert_eq!(amount(999, "ns"), "999 ns");
        assert_eq!(amount(1_500, "ns"), "1.5 us");
        assert_eq!(amount(2_000_000, "ns"), "2.0 ms");
        assert_eq!(amount(61_000_000_000, "ns"), "61.00 s");
        assert_eq!(amount(7, "bytes"), "7 bytes");
    }
}
