//! A comparison as one HTML page: a flame graph of both sides with the change of every box, and the table beside it.
//!
//! A box stands for a function with its callers, inlined ones among them; its width is the larger of both costs, so what
//! is gone and what is new can be seen. Needs no network. Knows no archive, no ELF and no DWARF.

mod data;

use std::io::Write;

use super::comparison::Comparison;
use super::functions::Functions;
use crate::error::Result;
use crate::export::page::shell::Shell;
use crate::export::page::{DATA, PAINT, STYLE, TEXT, VIEW};

const OWN_STYLE: &str = include_str!("assets/compare.css");
const BODY: &str = include_str!("assets/compare.html");
/// In this order, as one script.
const SCRIPTS: [&str; 7] = [
    DATA,
    VIEW,
    TEXT,
    PAINT,
    include_str!("assets/tree.js"),
    include_str!("assets/graph.js"),
    include_str!("assets/compare.js"),
];

/// Write the page. The same comparison gives the same bytes.
pub fn write_page(
    comparison: &Comparison,
    functions: &Functions,
    title: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let shell = Shell {
        title,
        styles: &[STYLE, OWN_STYLE],
        body: BODY,
        scripts: &SCRIPTS,
    };
    shell.write(out, &mut |out| {
        data::write(comparison, functions, title, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::page::shell::check_sources;

    /// Check that nothing in our own sources ends the element it stands in, or refers to another place.
    #[test]
    fn sources_fit() {
        check_sources(&[&SCRIPTS[..], &[OWN_STYLE]].concat(), BODY);
    }
}
