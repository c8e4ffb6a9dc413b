//! A comparison as text, Markdown, JSON, JUnit and SARIF. The same comparison gives the same bytes.

mod explain;
mod json;
mod junit;
mod markdown;
mod numbers;
mod sarif;
mod text;

pub use explain::write_explanation;
pub use json::write_json;
pub use junit::write_junit;
pub use markdown::write_markdown;
pub use sarif::write_sarif;
pub use text::write_text;

use super::comparison::{Comparison, Verdict};
use super::settings::Basis;
pub(super) use numbers::p_and_q;
use numbers::percent;

/// The outcome in one line.
pub(super) fn headline(comparison: &Comparison) -> String {
    match comparison.verdict {
        Verdict::Pass => "pass: no function got slower by more than the margin".to_owned(),
        Verdict::Regression => format!("regression: {}", comparison.reasons.join(", ")),
        Verdict::Inconclusive => {
            let more = match comparison.reasons.len() {
                0 | 1 => String::new(),
                several => format!(" (and {} more reasons)", several - 1),
            };
            let first = comparison.reasons.first().map_or("", String::as_str);
            format!("inconclusive: {first}{more}")
        }
    }
}

/// What several functions that got slower have in common.
pub(super) fn common(comparison: &Comparison) -> Option<String> {
    let names = comparison.callers.join(", called by ");
    (!names.is_empty()).then(|| format!("most of the rise is below {names}"))
}

/// How small a rise such runs could show.
pub(super) fn reach(comparison: &Comparison) -> String {
    let total = comparison.detectable.total;
    let total = total.map_or_else(String::new, |total| {
        format!("of the total by {}, ", percent(total))
    });
    format!(
        "four of five such comparisons would find a rise {total}of a function with a tenth of the cost by {}",
        percent(comparison.detectable.tenth)
    )
}

/// More lines about how sure all this is.
pub(super) fn assurances(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    let [base, new] = &comparison.sides;
    let runs = if comparison.within_run {
        "one run, in parts"
    } else {
        "runs"
    };
    lines.push(format!(
        "{} {runs} and {} samples in BASE, {} and {} in NEW; {} in {}, {}",
        base.runs,
        base.samples,
        new.runs,
        new.samples,
        comparison.event,
        comparison.unit,
        comparison.basis.per()
    ));
    if let Some(scale) = comparison.scale {
        lines.push(format!(
            "NEW's runs as a whole took {} of BASE's; that is divided out, since no work was declared (--work)",
            percent(scale)
        ));
    }
    if comparison.basis == Basis::Share {
        lines.push(
            "shares of a total: where one grows, others shrink without having changed".to_owned(),
        );
    }
    if comparison.unjudged > 0 {
        lines.push(format!(
            "{} with {} of the cost {} too few samples to be judged",
            functions(comparison.unjudged),
            percent(comparison.unjudged_cost),
            if comparison.unjudged == 1 {
                "has"
            } else {
                "have"
            }
        ));
    }
    lines
}

/// A number of functions.
fn functions(count: usize) -> String {
    if count == 1 {
        "1 function".to_owned()
    } else {
        format!("{count} functions")
    }
}
