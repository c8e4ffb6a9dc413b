//! For scripts: one JSON object with a versioned layout.

use std::io::Write;

use serde::Serialize;

use super::super::comparison::{ComparedRow, Comparison};
use super::numbers::p_and_q;
use crate::error::Result;

/// Version of the layout.
const SCHEMA: &str = "rawstack.diff.v1";

#[derive(Serialize)]
struct Document<'c> {
    schema: &'static str,
    verdict: &'static str,
    reasons: &'c [String],
    notes: &'c [String],
    canon: u32,
    event: &'c str,
    unit: &'c str,
    per: &'static str,
    inclusive: bool,
    within_run: bool,
    base: Side<'c>,
    new: Side<'c>,
    scale: Option<f64>,
    total: Row<'c>,
    total_judged: bool,
    rows: Vec<Row<'c>>,
    callers: &'c [String],
    unjudged: Unjudged,
    renamed: Vec<Renamed<'c>>,
    noise: Noise,
    detectable: Detectable,
}

#[derive(Serialize)]
struct Side<'c> {
    archives: &'c [String],
    runs: usize,
    samples: u64,
    lost: f64,
    unnamed: f64,
}

#[derive(Serialize)]
struct Row<'c> {
    name: &'c str,
    /// Counted from the declaration.
    line: Option<i64>,
    declared: Option<&'c str>,
    module: &'c str,
    file: Option<&'c str>,
    kernel: bool,
    base: f64,
    new: f64,
    /// Relative; none for what is new.
    change: Option<f64>,
    /// In the unit of costs, with probability 0.9.
    bounds: Option<[f64; 2]>,
    base_total: f64,
    new_total: f64,
    p: f64,
    q: f64,
    verdict: &'static str,
    why: Option<&'c str>,
}

#[derive(Serialize)]
struct Unjudged {
    functions: usize,
    cost: f64,
}

#[derive(Serialize)]
struct Renamed<'c> {
    from: &'c str,
    to: &'c str,
    score: f64,
    accepted: bool,
}

#[derive(Serialize)]
struct Noise {
    psi: f64,
    phi: f64,
    freedom: f64,
    functions: usize,
}

#[derive(Serialize)]
struct Detectable {
    total: Option<f64>,
    tenth: Option<f64>,
}

/// Write it.
pub fn write_json(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let side = |number: usize| {
        let side = &comparison.sides[number];
        Side {
            archives: &side.archives,
            runs: side.runs,
            samples: side.samples,
            lost: side.loss,
            unnamed: side.unnamed,
        }
    };
    let renamed = comparison.renamed.iter().map(|renamed| Renamed {
        from: &renamed.from,
        to: &renamed.to,
        score: renamed.score,
        accepted: comparison.renames_accepted,
    });
    let noise = comparison.noise;
    let detectable = comparison.detectable;
    let document = Document {
        schema: SCHEMA,
        verdict: comparison.verdict.name(),
        reasons: &comparison.reasons,
        notes: &comparison.notes,
        canon: comparison.canon,
        event: &comparison.event,
        unit: &comparison.unit,
        per: comparison.basis.name(),
        inclusive: comparison.inclusive,
        within_run: comparison.within_run,
        base: side(0),
        new: side(1),
        scale: comparison.scale,
        total: row(&comparison.total),
        total_judged: comparison.total_judged,
        rows: comparison.rows.iter().map(row).collect(),
        callers: &comparison.callers,
        unjudged: Unjudged {
            functions: comparison.unjudged,
            cost: comparison.unjudged_cost,
        },
        renamed: renamed.collect(),
        noise: Noise {
            psi: noise.psi,
            phi: noise.phi,
            freedom: noise.freedom,
            functions: noise.functions,
        },
        detectable: Detectable {
            total: detectable.total.filter(|total| total.is_finite()),
            tenth: Some(detectable.tenth).filter(|tenth| tenth.is_finite()),
        },
    };
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn row(row: &ComparedRow) -> Row<'_> {
    let (p, q) = p_and_q(row);
    let (low, high) = row.bounds();
    Row {
        name: &row.name,
        line: row.line,
        declared: row.declared.as_deref(),
        module: &row.module,
        file: row.file.as_deref(),
        kernel: row.kernel,
        base: row.cost[0],
        new: row.cost[1],
        change: row.relative(),
        bounds: (low.is_finite() && high.is_finite()).then_some([low, high]),
        base_total: row.with_callees[0],
        new_total: row.with_callees[1],
        p,
        q,
        verdict: row.verdict.name(),
        why: row.why.as_deref(),
    }
}
