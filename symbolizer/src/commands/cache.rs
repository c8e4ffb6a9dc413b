//! `rawstack cache`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::cache::Cache;
use rawstack_symbolizer::output;
use rawstack_symbolizer::text::clean;
use serde::Serialize;

use crate::args::names::CacheArgs;

#[derive(Serialize)]
struct JsonCache<'c> {
    path: &'c str,
    entries: u64,
    bytes: u64,
    limit: u64,
}

/// Tell what the cache holds, or empty it.
pub(crate) fn run(args: &CacheArgs) -> Result<ExitCode> {
    let cache = Cache::of_user().context(
        "failed to find the cache: neither XDG_CACHE_HOME nor HOME is set; set one of them",
    )?;
    let folder = cache.folder().display().to_string();
    let path = clean(&folder);
    if args.clear {
        cache
            .clear()
            .with_context(|| format!("failed to clear the cache in {path}"))?;
    }
    let usage = cache
        .usage()
        .with_context(|| format!("failed to read the cache in {path}"))?;
    let mut out = output::open(args.output.output.as_deref())?;
    if args.json {
        let row = JsonCache {
            path: &path,
            entries: usage.entries,
            bytes: usage.bytes,
            limit: usage.limit,
        };
        serde_json::to_writer(&mut *out, &row).context("failed to write the output")?;
        writeln!(out).context("failed to write the output")?;
    } else {
        let (entries, bytes, limit) = (usage.entries, usage.bytes, usage.limit);
        writeln!(out, "{path}: {entries} entries, {bytes} of {limit} bytes")
            .context("failed to write the output")?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}
