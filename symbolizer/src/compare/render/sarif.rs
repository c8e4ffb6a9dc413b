//! SARIF 2.1.0, as code hosts show findings: a result for each function that got slower, at its file.

use std::io::Write;

use serde_json::{Value, json};

use super::super::comparison::{Comparison, RowVerdict, Verdict};
use super::headline;
use super::numbers::{bounds, change, cost};
use crate::error::Result;

/// The layout that hosts take.
const VERSION: &str = "2.1.0";
const RULE: &str = "slower";

/// Write it.
pub fn write_sarif(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let is_doubtful = comparison.verdict == Verdict::Inconclusive;
    let level = if is_doubtful { "note" } else { "error" };
    let results: Vec<Value> = comparison
        .with(RowVerdict::Regression)
        .map(|row| {
            let [base, new] = row.cost.map(|value| cost(comparison, value));
            let name = row.shown();
            let text = format!("{name} got slower: {} ({}), {base} to {new}", change(row), bounds(row));
            let mut location = json!({ "logicalLocations": [{ "fullyQualifiedName": name, "kind": "function" }] });
            if let Some(file) = &row.file {
                let place = json!({ "artifactLocation": { "uri": uri(file) }, "region": { "startLine": 1 } });
                location["physicalLocation"] = place;
            }
            json!({
                "ruleId": RULE,
                "level": level,
                "message": { "text": text },
                "locations": [location],
                "partialFingerprints": { "function/v1": format!("{}:{name}", row.module) },
            })
        })
        .collect();
    let rule = json!({
        "id": RULE,
        "shortDescription": { "text": "A function costs more than before, beyond the margin and the noise" },
    });
    let notification = json!({ "level": level, "message": { "text": headline(comparison) } });
    let invocation = json!({
        "executionSuccessful": !is_doubtful,
        "toolExecutionNotifications": [notification],
    });
    let driver =
        json!({ "name": "rawstack diff", "version": env!("CARGO_PKG_VERSION"), "rules": [rule] });
    let run =
        json!({ "tool": { "driver": driver }, "invocations": [invocation], "results": results });
    let document = json!({ "version": VERSION, "runs": [run] });
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// A path as a URI reference: bytes that are no path characters are escaped.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~+".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a path with blanks and other letters is a URI.
    #[test]
    fn paths() {
        assert_eq!(uri("src/a b/ü.c"), "src/a%20b/%C3%BC.c");
    }
}
