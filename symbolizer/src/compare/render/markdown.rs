//! For a pull request: what matters first, the rest folded, within the length that a comment may have.

use std::io::Write;

use super::super::comparison::{ComparedRow, Comparison, RowVerdict, Verdict};
use super::numbers::{bounds, change, cost, p_and_q, probability};
use super::{assurances, common, reach};
use crate::error::Result;

/// Characters of a comment: hosts take 65,536; some hundred are left for what is put around it.
const MOST: usize = 65_000;
/// Characters of a name.
const LONGEST_NAME: usize = 160;
/// What comes last.
const LEFT_OUT: &str = "\n_The rest is left out: it does not fit into a comment._\n";

/// Write it.
pub fn write_markdown(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let mut page = Page::default();
    page.add(&format!("### {}\n\n", title(comparison)));
    for reason in &comparison.reasons {
        page.add(&format!("- {}\n", plain(reason)));
    }
    if let Some(common) = common(comparison) {
        page.add(&format!("- {}\n", plain(&common)));
    }
    // Where nothing was found, it matters first what could have been.
    if comparison.verdict == Verdict::Pass {
        page.add(&format!("- {}\n", plain(&reach(comparison))));
    }
    page.add("\n");
    page.add(HEAD);
    page.add(&line(comparison, &comparison.total));
    let failing = [RowVerdict::Regression];
    page.rows(comparison, &failing);
    page.fold("Improvements", comparison, RowVerdict::Improvement);
    page.fold(
        "Moved cost: a function is heavier, what it belongs to is not",
        comparison,
        RowVerdict::Moved,
    );
    page.fold("Allowed", comparison, RowVerdict::Allowed);
    page.fold("Unchanged", comparison, RowVerdict::Same);
    page.add("\n<details><summary>How sure this is</summary>\n\n");
    let how_sure = [reach(comparison)]
        .into_iter()
        .chain(assurances(comparison));
    for text in how_sure.chain(comparison.notes.iter().cloned()) {
        page.add(&format!("- {}\n", plain(&text)));
    }
    for renamed in &comparison.renamed {
        let (from, to) = (code(&renamed.from), code(&renamed.to));
        page.add(&format!(
            "- renamed? {from} → {to} (score {:.2})\n",
            renamed.score
        ));
    }
    page.add("\n</details>\n");
    out.write_all(page.finish().as_bytes())?;
    Ok(())
}

const HEAD: &str =
    "| | Change | 90 % bounds | Base | New | q | Function |\n|---|--:|--:|--:|--:|--:|---|\n";

fn title(comparison: &Comparison) -> String {
    let count = comparison.count(RowVerdict::Regression);
    let functions = if count == 1 { "function" } else { "functions" };
    match comparison.verdict {
        Verdict::Pass => "Performance: no regression".to_owned(),
        Verdict::Regression if count == 0 => {
            format!("Performance: the total rose, {}", change(&comparison.total))
        }
        Verdict::Regression => format!("Performance: {count} {functions} got slower"),
        Verdict::Inconclusive => "Performance: inconclusive".to_owned(),
    }
}

/// Text that stays within the length, cut at a line.
#[derive(Default)]
struct Page {
    text: String,
    length: usize,
    is_full: bool,
    /// Whether a folded part is open.
    is_open: bool,
}

impl Page {
    fn add(&mut self, text: &str) {
        let length = text.chars().count();
        let reserved = LEFT_OUT.len() + "\n</details>\n".len();
        self.is_full |= self.length + length + reserved > MOST;
        if !self.is_full {
            self.text.push_str(text);
            self.length += length;
        }
    }

    fn rows(&mut self, comparison: &Comparison, verdicts: &[RowVerdict]) {
        for row in comparison
            .rows
            .iter()
            .filter(|row| verdicts.contains(&row.verdict))
        {
            self.add(&line(comparison, row));
        }
    }

    fn fold(&mut self, title: &str, comparison: &Comparison, verdict: RowVerdict) {
        let count = comparison.count(verdict);
        if count == 0 || self.is_full {
            return;
        }
        self.add(&format!(
            "\n<details><summary>{title} ({count})</summary>\n\n{HEAD}"
        ));
        self.is_open = !self.is_full;
        self.rows(comparison, &[verdict]);
        if !self.is_full {
            self.add("\n</details>\n");
            self.is_open = false;
        }
    }

    fn finish(mut self) -> String {
        if self.is_full {
            if self.is_open {
                self.text.push_str("\n</details>\n");
            }
            self.text.push_str(LEFT_OUT);
        }
        self.text
    }
}

fn line(comparison: &Comparison, row: &ComparedRow) -> String {
    let [base, new] = row.cost.map(|value| cost(comparison, value));
    let (_, q) = p_and_q(row);
    let mark = match row.verdict {
        RowVerdict::Regression => "**slower**",
        RowVerdict::Allowed => "allowed",
        RowVerdict::Moved => "moved",
        RowVerdict::Improvement => "faster",
        RowVerdict::Same => "",
    };
    let why = row
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!(" ({})", plain(why)));
    let q = probability(q).replace('<', "&lt;");
    let (change, bounds, name) = (change(row), bounds(row), code(&row.shown()));
    format!("| {mark} | {change} | {bounds} | {base} | {new} | {q} | {name}{why} |\n")
}

/// A name that Markdown leaves alone, mentions nobody and breaks no table.
fn code(name: &str) -> String {
    let cut: String = name.chars().take(LONGEST_NAME).collect();
    let cut = if cut.len() < name.len() {
        format!("{cut}…")
    } else {
        cut
    };
    let mut safe = String::new();
    for c in cut.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            c if c.is_ascii_punctuation() => safe.push_str(&format!("&#{};", u32::from(c))),
            c => safe.push(c),
        }
    }
    format!("<code>{safe}</code>")
}

/// Text of ours that may hold names.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '@' | '#' | '\\' | '~' => {
                safe.push_str(&format!("&#{};", u32::from(c)))
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name neither ends its cell or its element, nor mentions anybody, nor is endless.
    #[test]
    fn hostile_names() {
        let shown = code("a|b`@all</code><img src=x>[x](y)\\");
        assert!(
            !shown[6..shown.len() - 7].contains(['|', '`', '@', '<', '>', '[', '\\']),
            "{shown}"
        );
        assert!(code(&"x".repeat(9999)).chars().count() < 200);
        assert_eq!(plain("a_b|c"), "a&#95;b&#124;c");
    }
}
