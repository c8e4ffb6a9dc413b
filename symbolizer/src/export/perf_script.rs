//! The text of `perf script`, which many tools read.

use std::io::Write;

use super::exporter::{ExportSample, Exporter, Source};
use crate::error::Result;

/// Writes a line of facts for each sample, a line for each frame, an empty line.
#[derive(Debug, Default)]
pub struct PerfScript;

impl Exporter for PerfScript {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let profile = source.profile;
        let row = sample.row.copied().unwrap_or_default();
        let comm = source
            .thread(sample)
            .map_or("", |thread| thread.comm.as_str());
        let event = source.event(sample);
        let (seconds, micros) = (
            row.time_ns / 1_000_000_000,
            row.time_ns % 1_000_000_000 / 1000,
        );
        if comm.is_empty() {
            write!(out, ":{}", row.tid)?;
        } else {
            write!(out, "{comm}")?;
        }
        writeln!(
            out,
            " {:>7}/{:<7} [{:03}] {seconds}.{micros:06}: {:>10} {event}: ",
            row.pid, row.tid, row.cpu, row.weight
        )?;
        for located in sample.stack {
            let frame = profile.frame(located.named);
            let module = if frame.inlined {
                "inlined"
            } else {
                profile.text(frame.module)
            };
            let address = profile.address(located);
            writeln!(
                out,
                "\t{address:>16x} {} ({module})",
                profile.text(frame.name)
            )?;
        }
        out.write_all(b"\n")?;
        Ok(())
    }
}
