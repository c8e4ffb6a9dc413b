//! A flame graph as one HTML page that asks nobody for anything: markup, style, script and data in one file.
//!
//! The sources of the page are in `assets`: plain JavaScript, put together here, without a build step. Knows no archive,
//! no ELF and no DWARF.

mod data;
pub(crate) mod pack;
pub(crate) mod shell;

use std::io::Write;

use crate::error::{Error, Result};
use crate::explore::Explored;
use crate::profile::Timeline;
use crate::report::NameFilter;
use crate::symbolized::SymbolizedProfile;
use shell::Shell;

/// What all pages look like.
pub(crate) const STYLE: &str = include_str!("assets/style.css");
/// How pages read columns.
pub(crate) const DATA: &str = include_str!("assets/data.js");
/// What they draw.
pub(crate) const VIEW: &str = include_str!("assets/view.js");
/// How they tell numbers and names.
pub(crate) const TEXT: &str = include_str!("assets/text.js");
/// How they draw boxes.
pub(crate) const PAINT: &str = include_str!("assets/paint.js");
const BODY: &str = include_str!("assets/body.html");
/// In this order, as one script: each uses what those before it declare.
const SCRIPTS: [&str; 10] = [
    DATA,
    VIEW,
    TEXT,
    PAINT,
    include_str!("assets/flame.js"),
    include_str!("assets/heat.js"),
    include_str!("assets/table.js"),
    include_str!("assets/app.js"),
    include_str!("assets/controls.js"),
    include_str!("assets/main.js"),
];

/// Write the page of the selected stacks; the events of `profile.rows` are those that count.
///
/// The same profile gives the same bytes. Nothing is written where there is nothing to draw.
pub fn write(
    profile: &SymbolizedProfile,
    timeline: &Timeline,
    names: &NameFilter,
    title: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let data = Explored::of(profile, timeline, names);
    if data.is_empty() {
        return Err(Error::NothingToDraw);
    }
    let shell = Shell {
        title,
        styles: &[STYLE],
        body: BODY,
        scripts: &SCRIPTS,
    };
    shell.write(out, &mut |out| data::write(&data, title, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing in our own sources ends the element it stands in, or refers to another place.
    #[test]
    fn sources_fit() {
        shell::check_sources(&[&SCRIPTS[..], &[STYLE]].concat(), BODY);
    }
}
