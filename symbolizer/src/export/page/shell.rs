//! One HTML file around styles, markup, scripts and data.
//!
//! A policy in the page allows this script and this style by their digests and nothing else, so neither a name in an
//! archive nor a mistake of ours can load or run anything.

use std::io::Write;

use base64::engine::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::text::escaped_markup;

/// Writes the data of a page, as text that markup leaves alone.
pub(crate) type WriteData<'d> = dyn FnMut(&mut dyn Write) -> Result<()> + 'd;

/// The parts of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shell<'s> {
    /// Title.
    pub(crate) title: &'s str,
    /// Styles, as one.
    pub(crate) styles: &'s [&'s str],
    /// Markup.
    pub(crate) body: &'s str,
    /// Scripts, as one: each uses what those before it declare.
    pub(crate) scripts: &'s [&'s str],
}

impl Shell<'_> {
    /// Write the page; its data stands in the element `profile`.
    pub(crate) fn write(&self, out: &mut dyn Write, data: &mut WriteData<'_>) -> Result<()> {
        let style = self.styles.concat();
        let script = format!(
            "\"use strict\";\n(() => {{\n{}}})();\n",
            self.scripts.concat()
        );
        let (script_digest, style_digest) = (digest(&script), digest(&style));
        let (heading, body) = (escaped_markup(self.title), self.body);
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             script-src 'sha256-{script_digest}'; style-src 'sha256-{style_digest}'; base-uri 'none'; \
             form-action 'none'\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{heading}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\
             <script id=\"profile\" type=\"application/octet-stream\">"
        )?;
        data(out)?;
        write!(
            out,
            "</script>\n<script>{script}</script>\n</body>\n</html>\n"
        )?;
        Ok(())
    }
}

/// SHA-256 as a policy names it.
fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Fail where a source ends the element it stands in, or refers to another place.
#[cfg(test)]
pub(crate) fn check_sources(sources: &[&str], body: &str) {
    for source in sources {
        let lower = source.to_lowercase();
        for refused in ["</", "<!--", "http:", "https:", "@import", "url("] {
            assert!(!lower.contains(refused), "{refused}");
        }
    }
    for word in body.split_whitespace() {
        let refused = ["style=", "src=", "href=", "on"]
            .iter()
            .find(|start| word.starts_with(*start));
        assert!(refused.is_none() || !word.contains('='), "{word}");
    }
}
