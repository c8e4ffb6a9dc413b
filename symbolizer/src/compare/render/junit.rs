//! JUnit XML, as CI shows tests: one case for the total and one for each function that was judged and changed.

use std::io::Write;

use super::super::comparison::{ComparedRow, Comparison, RowVerdict, Verdict};
use super::headline;
use super::numbers::{bounds, change, cost};
use crate::error::Result;
use crate::text::escaped_markup;

/// Write it.
pub fn write_junit(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let changed = comparison
        .rows
        .iter()
        .filter(|row| row.verdict != RowVerdict::Same);
    let rows: Vec<&ComparedRow> = [&comparison.total].into_iter().chain(changed).collect();
    let is_doubtful = comparison.verdict == Verdict::Inconclusive;
    let fails = |row: &ComparedRow| {
        let is_judged = comparison.total_judged || !row.module.is_empty();
        row.verdict == RowVerdict::Regression && !is_doubtful && is_judged
    };
    let failures = rows.iter().filter(|row| fails(row)).count();
    let tests = rows.len() + 1;
    let skipped = usize::from(is_doubtful);
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuite name=\"rawstack diff\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">"
    )?;
    let said = escaped_markup(&headline(comparison));
    if is_doubtful {
        writeln!(
            out,
            "<testcase classname=\"rawstack\" name=\"verdict\"><skipped message=\"{said}\"/></testcase>"
        )?;
    } else {
        writeln!(
            out,
            "<testcase classname=\"rawstack\" name=\"verdict\"><system-out>{said}</system-out></testcase>"
        )?;
    }
    for row in rows {
        let (name, module) = (escaped_markup(&row.shown()), escaped_markup(&row.module));
        let [base, new] = row.cost.map(|value| cost(comparison, value));
        let line = escaped_markup(&format!(
            "{} ({}): {base} -> {new}, {}",
            change(row),
            bounds(row),
            row.verdict.name()
        ));
        if fails(row) {
            writeln!(
                out,
                "<testcase classname=\"{module}\" name=\"{name}\"><failure message=\"{line}\"/></testcase>"
            )?;
        } else {
            writeln!(
                out,
                "<testcase classname=\"{module}\" name=\"{name}\"><system-out>{line}</system-out></testcase>"
            )?;
        }
    }
    writeln!(out, "</testsuite>")?;
    Ok(())
}
