//! A flame graph as SVG, through inferno.

use std::io::Write;

use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use super::folded::fold;
use crate::error::{Error, Result};
use crate::report::NameFilter;
use crate::symbolized::SymbolizedProfile;

/// Boxes below this share of the total are too narrow to be seen, in percent.
const LEAST_PERCENT: f64 = 0.01;

/// What the picture shows.
#[derive(Clone, Debug, Default)]
pub struct FlamegraphOptions {
    /// Title.
    pub title: String,
    /// Leave out boxes below this share of the total, in percent.
    pub min_percent: f64,
}

/// Draw the selected stacks of `profile`.
pub fn write(
    profile: &SymbolizedProfile,
    names: &NameFilter,
    options: &FlamegraphOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let least = options.min_percent.max(LEAST_PERCENT);
    let folded = fold(profile, names, least);
    if folded.values().all(|&weight| weight == 0) {
        return Err(Error::NothingToDraw);
    }
    let lines: Vec<String> = folded
        .iter()
        .map(|(stack, weight)| format!("{stack} {weight}"))
        .collect();
    let mut settings = Options::default();
    settings.title.clone_from(&options.title);
    settings.count_name = profile.unit().to_owned();
    settings.deterministic = true;
    settings.colors = Palette::Multi(MultiPalette::Perl);
    settings.min_width = least;
    flamegraph::from_lines(&mut settings, lines.iter().map(String::as_str), out)
        .map_err(Error::Write)
}
