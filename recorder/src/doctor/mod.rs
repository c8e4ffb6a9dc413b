//! What this host can do, what is missing, and how to get it: each thing really tried. Records nothing.

mod events;
mod host;
mod kernel;
mod others;
mod rights;

use std::fmt::{self, Display, Formatter};

use crate::options::Options;

/// Columns of a check's name.
const NAME_WIDTH: usize = 24;
const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It works; what there is to say of it.
    Works(String),
    /// It does not; why, and how to get it.
    Missing(String),
}

impl Verdict {
    /// Works where there was no error, with `detail`.
    fn of<E: Display>(result: Result<(), E>, detail: impl Into<String>) -> Self {
        match result {
            Ok(()) => Self::Works(detail.into()),
            Err(error) => Self::Missing(error.to_string()),
        }
    }

    /// Works or not, each with its words.
    fn when(works: bool, detail: impl Into<String>, why: impl Into<String>) -> Self {
        if works {
            Self::Works(detail.into())
        } else {
            Self::Missing(why.into())
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    name: &'static str,
    verdict: Verdict,
    /// Without it nothing is recorded.
    is_needed: bool,
}

impl Check {
    /// Without it nothing is recorded.
    fn needed(name: &'static str, verdict: Verdict) -> Self {
        Self {
            name,
            verdict,
            is_needed: true,
        }
    }

    /// Without it less is recorded.
    fn wanted(name: &'static str, verdict: Verdict) -> Self {
        Self {
            name,
            verdict,
            is_needed: false,
        }
    }
}

/// All that was looked at, by group.
#[derive(Clone, Debug)]
pub struct Report {
    groups: Vec<(&'static str, Vec<Check>)>,
    /// Write in colour.
    pub is_coloured: bool,
}

/// Look at this host, for a recording with these options.
pub fn examine(options: &Options) -> Report {
    Report {
        groups: vec![
            ("Kernel", kernel::checks()),
            ("Rights", rights::checks()),
            ("Events", events::checks()),
            ("Other processes", others::checks()),
            ("Host", host::checks(options)),
        ],
        is_coloured: false,
    }
}

impl Report {
    /// Whether a default recording works here.
    pub fn is_ready(&self) -> bool {
        let mut checks = self.groups.iter().flat_map(|(_, checks)| checks);
        checks.all(|check| !check.is_needed || matches!(check.verdict, Verdict::Works(_)))
    }

    fn write(&self, f: &mut Formatter<'_>, check: &Check) -> fmt::Result {
        let (word, colour, text) = match (&check.verdict, check.is_needed) {
            (Verdict::Works(text), _) => ("works", GREEN, text),
            (Verdict::Missing(text), true) => ("missing", RED, text),
            (Verdict::Missing(text), false) => ("missing", YELLOW, text),
        };
        let (start, end) = if self.is_coloured {
            (colour, PLAIN)
        } else {
            ("", "")
        };
        let name = check.name;
        let line = format!("  {start}{word:<7}{end}  {name:<NAME_WIDTH$}  {text}");
        writeln!(f, "{}", line.trim_end())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (group, checks) in &self.groups {
            writeln!(f, "{group}")?;
            checks.iter().try_for_each(|check| self.write(f, check))?;
        }
        let conclusion = if self.is_ready() {
            "A recording with default options works here."
        } else {
            "Nothing can be recorded here yet: see what is missing above."
        };
        writeln!(f, "\n{conclusion}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: Verdict, is_needed: bool) -> Report {
        let check = Check {
            name: "thing",
            verdict,
            is_needed,
        };
        Report {
            groups: vec![("Group", vec![check])],
            is_coloured: false,
        }
    }

    /// Check that only what is needed stands in the way, and that a line says what, whether and why.
    #[test]
    fn lines() {
        let missing = || Verdict::Missing("it is gone; get it".to_owned());
        assert!(!report(missing(), true).is_ready());
        assert!(report(missing(), false).is_ready());
        let text = report(missing(), false).to_string();
        let line = format!("  missing  {:<NAME_WIDTH$}  it is gone; get it\n", "thing");
        assert!(text.starts_with(&format!("Group\n{line}")), "{text}");
        let mut coloured = report(missing(), true);
        coloured.is_coloured = true;
        assert!(coloured.to_string().contains("\u{1b}[31mmissing\u{1b}[0m"));
    }
}
