//! The finished comparison: everything that is printed. Knows no profile.

use super::settings::Basis;
use super::stats::{Noise, Tested};

/// What is said of a function, from what matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowVerdict {
    /// Its cost rose.
    Regression,
    /// Its cost rose, and that is accepted.
    Allowed,
    /// Its cost rose, and what it belongs to did not.
    Moved,
    /// Its cost fell.
    Improvement,
    /// No change beyond the margin was found.
    Same,
}

impl RowVerdict {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Allowed => "allowed",
            Self::Moved => "moved",
            Self::Improvement => "improvement",
            Self::Same => "same",
        }
    }
}

/// A function's name, of a line as `name+3`, and of one of several with where it is declared.
pub(super) fn shown_name(name: &str, line: Option<i64>, declared: Option<&str>) -> String {
    let mut shown = name.to_owned();
    if let Some(line) = line {
        shown.push_str(&format!("{line:+}"));
    }
    if let Some(declared) = declared {
        shown.push_str(&format!(" ({declared})"));
    }
    shown
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing got slower, as far as these runs can tell.
    Pass,
    /// Something did.
    Regression,
    /// These runs cannot tell.
    Inconclusive,
}

impl Verdict {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Regression => "regression",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A function, or the total, on both sides. Costs are in the comparison's unit, per what its basis says.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRow {
    /// Canonical name.
    pub name: String,
    /// Line of the function, counted from its declaration, where lines are told apart.
    pub line: Option<i64>,
    /// Where the function is declared, `file:line`, if others have its name.
    pub declared: Option<String>,
    /// Module without version.
    pub module: String,
    /// Source file, where all frames agree.
    pub file: Option<String>,
    /// Whether it is in the kernel.
    pub kernel: bool,
    /// Cost of what was judged (by itself, or with what it called), base first.
    pub cost: [f64; 2],
    /// Cost with what it called, recursion counted once.
    pub with_callees: [f64; 2],
    /// What one count stands for, in the unit of costs.
    pub unit: f64,
    /// Counts of each column, by side.
    pub counts: [Vec<f64>; 2],
    /// The test.
    pub tested: Tested,
    /// Rate of false discoveries at which its rise would be told; of the total the probability itself.
    pub q_up: f64,
    /// The same for its fall.
    pub q_down: f64,
    /// What is said of it.
    pub verdict: RowVerdict,
    /// Why the verdict is not a plain one: where cost moved, or why a rise is accepted.
    pub why: Option<String>,
}

impl ComparedRow {
    /// The name, with what tells it from others of that name.
    pub fn shown(&self) -> String {
        shown_name(&self.name, self.line, self.declared.as_deref())
    }

    /// Change in the unit of costs.
    pub fn change(&self) -> f64 {
        self.cost[1] - self.cost[0]
    }

    /// Relative change, 0.1 for 10 % more; none for what is new.
    pub fn relative(&self) -> Option<f64> {
        (self.cost[0] > 0.0).then(|| self.change() / self.cost[0])
    }

    /// Bounds of the change in the unit of costs, within which it lies with probability 0.9.
    pub fn bounds(&self) -> (f64, f64) {
        let (low, high) = self.tested.bounds(0.05);
        (low * self.unit, high * self.unit)
    }
}

/// A function that may have been renamed.
#[derive(Clone, Debug, PartialEq)]
pub struct RenamedRow {
    /// Name in the base.
    pub from: String,
    /// Name in the new side.
    pub to: String,
    /// How alike they are, 0 to 1.
    pub score: f64,
}

/// What can be found in such runs at all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Detectable {
    /// Smallest relative rise of the total that four of five comparisons find; none where it is not judged.
    pub total: Option<f64>,
    /// The same of a function with a tenth of the cost.
    pub tenth: f64,
}

/// One side as it was compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideSummary {
    /// Archives.
    pub archives: Vec<String>,
    /// Runs.
    pub runs: usize,
    /// Samples.
    pub samples: u64,
    /// Part of the samples that were lost.
    pub loss: f64,
    /// Part of the cost in functions without a name.
    pub unnamed: f64,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Outcome.
    pub verdict: Verdict,
    /// Why the outcome is what it is, or may not be relied on.
    pub reasons: Vec<String>,
    /// What else is to be told.
    pub notes: Vec<String>,
    /// Version of the rules for names.
    pub canon: u32,
    /// Event.
    pub event: String,
    /// Unit of costs.
    pub unit: String,
    /// What costs are per.
    pub basis: Basis,
    /// Whether functions were judged with what they called.
    pub inclusive: bool,
    /// Whether the columns are blocks of one run a side: then nothing is known of how runs differ.
    pub within_run: bool,
    /// Sides.
    pub sides: [SideSummary; 2],
    /// Exposure of each column.
    pub exposures: [Vec<f64>; 2],
    /// How much longer the new side's runs were as a whole, where that was divided out: 1.1 for 10 %.
    pub scale: Option<f64>,
    /// The total; not judged where costs are relative to it.
    pub total: ComparedRow,
    /// Whether the total was judged.
    pub total_judged: bool,
    /// Functions that were judged: by verdict, then size of the change, then name.
    pub rows: Vec<ComparedRow>,
    /// Callers that most of the rise is below where several functions got slower, the nearest first.
    pub callers: Vec<String>,
    /// Functions with too few samples to be judged.
    pub unjudged: usize,
    /// Part of the cost that they have.
    pub unjudged_cost: f64,
    /// Functions that may have been renamed.
    pub renamed: Vec<RenamedRow>,
    /// Whether they were taken as the same.
    pub renames_accepted: bool,
    /// What noise is like.
    pub noise: Noise,
    /// What could be found.
    pub detectable: Detectable,
    /// Level of the functions' tests.
    pub q: f64,
    /// Level of the total's test.
    pub alpha: f64,
}

impl Comparison {
    /// Rows of one verdict.
    pub fn with(&self, verdict: RowVerdict) -> impl Iterator<Item = &ComparedRow> {
        self.rows.iter().filter(move |row| row.verdict == verdict)
    }

    /// How many rows have a verdict.
    pub fn count(&self, verdict: RowVerdict) -> usize {
        self.with(verdict).count()
    }
}
