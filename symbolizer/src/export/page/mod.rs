//! A flame graph as one HTML page that asks nobody for anything: markup, style, script and data in one file.
//!
//! The sources of the page are in `assets`: plain JavaScript, put together here, without a build step. A policy in the
//! page allows this script and this style by their digests and nothing else, so neither a name in an archive nor a
//! mistake of ours can load or run anything. Knows no archive, no ELF and no DWARF.

mod data;
mod pack;

use std::io::Write;

use base64::engine::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::explore::Explored;
use crate::profile::Timeline;
use crate::report::NameFilter;
use crate::symbolized::SymbolizedProfile;

const STYLE: &str = include_str!("assets/style.css");
const BODY: &str = include_str!("assets/body.html");
/// In this order, as one script: each uses what those before it declare.
const SCRIPTS: [&str; 10] = [
    include_str!("assets/data.js"),
    include_str!("assets/view.js"),
    include_str!("assets/text.js"),
    include_str!("assets/paint.js"),
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
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat());
    let (script_digest, style_digest) = (digest(&script), digest(STYLE));
    let heading = escaped(title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{script_digest}'; \
         style-src 'sha256-{style_digest}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{heading}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script id=\"profile\" type=\"application/octet-stream\">"
    )?;
    data::write(&data, title, out)?;
    write!(
        out,
        "</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )?;
    Ok(())
}

/// SHA-256 as a policy names it.
fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Text as it may stand in markup.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing in our own sources ends the element it stands in, or refers to another place.
    #[test]
    fn sources_fit() {
        for source in SCRIPTS.iter().chain([&STYLE]) {
            let lower = source.to_lowercase();
            for refused in ["</", "<!--", "http:", "https:", "@import", "url("] {
                assert!(!lower.contains(refused), "{refused}");
            }
        }
        for word in BODY.split_whitespace() {
            let refused = ["style=", "src=", "href=", "on"]
                .iter()
                .find(|start| word.starts_with(*start));
            assert!(refused.is_none() || !word.contains('='), "{word}");
        }
    }
}
