//! Source lines of functions with the time that they took.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::render::{amount, share};
use super::table::{Table, TableRow};
use crate::error::Result;
use crate::source_files::SourceFiles;
use crate::text::Columns;

/// Lines that are shown before and behind one that took time.
const AROUND: u32 = 3;

/// Functions with their lines.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Version of this layout.
    pub schema: &'static str,
    /// Unit of all numbers.
    pub unit: String,
    /// Sum over all selected samples.
    pub total: u64,
    /// Number of selected samples.
    pub samples: u64,
    /// By self, then total, then name.
    pub functions: Vec<SourceFunction>,
}

/// One function, in one file: code of another file that was inlined as text stands by itself.
#[derive(Clone, Debug, Serialize)]
pub struct SourceFunction {
    /// Its name.
    pub name: String,
    /// Path of its module.
    pub module: String,
    /// File, as debug information calls it.
    pub file: Option<String>,
    /// Where that was found here, else null.
    pub found: Option<String>,
    /// Time in these lines themselves.
    #[serde(rename = "self")]
    pub self_weight: u64,
    /// Time in the function and in what it called.
    pub total: u64,
    /// Lines that took time, and those around them where the source was found.
    pub lines: Vec<SourceLine>,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct SourceLine {
    /// Its number.
    pub line: u32,
    /// Time in the line itself.
    #[serde(rename = "self")]
    pub self_weight: u64,
    /// Time in the line and in what it called.
    pub total: u64,
    /// Its text, null where the source was not found or has no such line.
    pub text: Option<String>,
}

/// What makes lines one function.
type Key<'t> = (&'t str, &'t str, Option<&'t str>);

/// Put the rows of a table of functions and of one of lines together with their source, of functions that `wanted` says.
pub fn report(
    (functions, lines): (&Table, &Table),
    wanted: &dyn Fn(&TableRow) -> bool,
    files: &mut SourceFiles,
) -> SourceReport {
    let totals: BTreeMap<(&str, &str), u64> = functions
        .rows
        .iter()
        .map(|row| ((row.name.as_str(), row.module.as_str()), row.total))
        .collect();
    let mut groups: BTreeMap<Key<'_>, Vec<&TableRow>> = BTreeMap::new();
    for row in lines.rows.iter().filter(|row| wanted(row)) {
        let key = (row.name.as_str(), row.module.as_str(), row.file.as_deref());
        groups.entry(key).or_default().push(row);
    }
    let function = |((name, module, file), rows): (Key<'_>, Vec<&TableRow>)| {
        let text = file.and_then(|file| files.find(file));
        let found = text.map(|text| text.path.clone());
        let lines = file_lines(&rows, text.map(|text| text.lines.as_slice()));
        SourceFunction {
            name: name.to_owned(),
            module: module.to_owned(),
            file: file.map(str::to_owned),
            found,
            self_weight: rows.iter().map(|row| row.self_weight).sum(),
            total: totals.get(&(name, module)).copied().unwrap_or(0),
            lines,
        }
    };
    let mut functions_found: Vec<_> = groups.into_iter().map(function).collect();
    functions_found.sort_by(|a, b| {
        let weights = |held: &SourceFunction| (Reverse(held.self_weight), Reverse(held.total));
        weights(a).cmp(&weights(b))
    });
    SourceReport {
        schema: "rawstack.source.v1",
        unit: lines.unit.clone(),
        total: lines.total,
        samples: lines.samples,
        functions: functions_found,
    }
}

/// The lines of a function that took time, and those around them where their text is known.
fn file_lines(rows: &[&TableRow], text: Option<&[String]>) -> Vec<SourceLine> {
    let mut lines: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for row in rows {
        let Some(line) = row.line else { continue };
        if let Some(text) = text {
            let last = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let around = line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND).min(last);
            around.for_each(|line| {
                lines.entry(line).or_default();
            });
        }
        let held = lines.entry(line).or_default();
        held.0 = held.0.saturating_add(row.self_weight);
        held.1 = held.1.saturating_add(row.total);
    }
    let of = |line: u32| text?.get((line as usize).checked_sub(1)?).cloned();
    let lines = lines.into_iter().map(|(line, (own, total))| SourceLine {
        line,
        self_weight: own,
        total,
        text: of(line),
    });
    lines.collect()
}

/// Leave out functions below `percent` of the total.
pub fn cut(report: &mut SourceReport, percent: f64) {
    let total = report.total;
    report
        .functions
        .retain(|function| share(function.total, total) >= percent);
}

/// Write one JSON object.
pub fn write_json(report: &SourceReport, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Write for people, lines cut to `columns`.
pub fn write_text(report: &SourceReport, columns: Columns, out: &mut dyn Write) -> Result<()> {
    let unit = report.unit.as_str();
    let all = amount(report.total, unit);
    let samples = report.samples;
    writeln!(
        out,
        "# total {all} in {samples} samples, by source line; percentages are of it"
    )?;
    for function in &report.functions {
        writeln!(out)?;
        write_head(function, (report.total, unit), out)?;
        let number = |weight: u64| match weight {
            0 => ".".to_owned(),
            weight => amount(weight, unit),
        };
        let mut last = None;
        for line in &function.lines {
            if last.is_some_and(|last: u32| last.saturating_add(1) < line.line) {
                writeln!(out, "{:>11} {:>11} {:>7}", "", "", "⋮")?;
            }
            last = Some(line.line);
            let (own, total) = (number(line.self_weight), number(line.total));
            let text = line.text.as_deref().unwrap_or_default();
            let text = format!("{own:>11} {total:>11} {:>7}  {text}", line.line);
            writeln!(out, "{}", columns.fit(text.trim_end()))?;
        }
    }
    Ok(())
}

fn write_head(
    function: &SourceFunction,
    (all, unit): (u64, &str),
    out: &mut dyn Write,
) -> Result<()> {
    let module = function.module.rsplit('/').next().unwrap_or_default();
    writeln!(out, "{}  {module}", function.name)?;
    let part = |weight: u64| format!("{} ({:.2}%)", amount(weight, unit), share(weight, all));
    let (own, total) = (part(function.self_weight), part(function.total));
    writeln!(out, "  self {own}, total {total}")?;
    match (&function.file, &function.found) {
        (Some(file), Some(found)) if file == found => writeln!(out, "  {file}")?,
        (Some(file), Some(found)) => writeln!(out, "  {file}, here {found}")?,
        (Some(file), None) => writeln!(
            out,
            "  {file}: not found here; name its folder with --source-dir, or --source-map FROM=TO"
        )?,
        (None, _) => writeln!(
            out,
            "  no source lines are known: `rawstack symbols` tells which debug file is missing"
        )?,
    }
    Ok(())
}
