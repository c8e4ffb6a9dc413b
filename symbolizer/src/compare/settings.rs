//! How to compare and what to accept: what the command line and the file of thresholds say together.

use regex_lite::Regex;

use super::functions::Apart;
use super::stats::{Margin, Strictness};

/// What a cost is counted per.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Declared work.
    Work,
    /// A run: what a run does is the same each time.
    Run,
    /// A run of the length that most functions tell.
    Ratio,
    /// The total: shares.
    Share,
}

impl Basis {
    /// Name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Run => "run",
            Self::Ratio => "ratio",
            Self::Share => "share",
        }
    }

    /// What a cost is per, for people.
    pub fn per(self) -> &'static str {
        match self {
            Self::Work => "per unit of work",
            Self::Run => "per run",
            Self::Ratio => "per run, normalised",
            Self::Share => "of the total",
        }
    }
}

/// Margins of some functions.
#[derive(Clone, Debug)]
pub struct Special {
    /// Which functions.
    pub pattern: Regex,
    /// Their margin.
    pub margin: Margin,
}

/// A regression that is known and accepted.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// Which functions.
    pub pattern: Regex,
    /// Why.
    pub reason: String,
    /// Last day on which it holds, in days since 1970; of a recording, not of the comparison.
    pub until: Option<i64>,
    /// Largest relative rise that is accepted, 0.2 for 20 %.
    pub up_to: Option<f64>,
}

/// All that a comparison is judged by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Margins and levels.
    pub strictness: Strictness,
    /// Margins of some functions; the first that matches counts.
    pub special: Vec<Special>,
    /// What is accepted.
    pub allowed: Vec<Allowed>,
    /// Runs that a side must have.
    pub min_runs: usize,
    /// Part of the samples that may be lost.
    pub max_loss: f64,
    /// Difference of the parts without a name that may be.
    pub max_unnamed: f64,
    /// The relative rise of the total that must be found in four of five comparisons.
    pub detect: Option<f64>,
    /// What a cost is counted per; by default work where all runs have it, else [`Basis::Ratio`].
    pub basis: Option<Basis>,
    /// Judge functions with what they called, not by themselves.
    pub inclusive: bool,
    /// Take functions that were probably renamed as the same.
    pub accept_renames: bool,
    /// How functions are told apart.
    pub apart: Apart,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            strictness: Strictness::default(),
            special: Vec::new(),
            allowed: Vec::new(),
            min_runs: 3,
            max_loss: 0.01,
            max_unnamed: 0.01,
            detect: None,
            basis: None,
            inclusive: false,
            accept_renames: false,
            apart: Apart::default(),
        }
    }
}

impl Settings {
    /// The margin of a function.
    pub fn margin(&self, name: &str) -> Margin {
        let special = self
            .special
            .iter()
            .find(|special| special.pattern.is_match(name));
        special.map_or(self.strictness.margin, |special| special.margin)
    }
}
