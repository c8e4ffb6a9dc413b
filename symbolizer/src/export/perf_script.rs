//! The text of `perf script`, which many tools read.

use std::io::Write;

use rawstack_format::record::Sample;

use crate::error::Result;
use crate::profile::{NodeId, ThreadId};
use crate::symbolized::SymbolizedProfile;

/// One sample, its stacks being of the profile.
#[derive(Clone, Copy, Debug)]
pub struct ScriptSample<'s> {
    /// The row.
    pub row: &'s Sample,
    /// Kernel half.
    pub kernel: NodeId,
    /// User half.
    pub user: NodeId,
    /// Thread.
    pub thread: ThreadId,
    /// Event, an index into the profile's.
    pub event: u32,
}

/// Write one sample, `stack` being room to work in: a line of facts, a line for each frame, an empty line.
pub fn write_sample(
    profile: &SymbolizedProfile,
    sample: &ScriptSample<'_>,
    stack: &mut Vec<(u64, u32)>,
    out: &mut dyn Write,
) -> Result<()> {
    let row = sample.row;
    let comm = profile
        .thread(sample.thread)
        .map_or("", |thread| thread.comm.as_str());
    let event = profile
        .events
        .get(sample.event as usize)
        .map_or("unknown", |event| event.name.as_str());
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
    stack.clear();
    profile.each_frame(
        sample.kernel,
        sample.user,
        (row.state, row.kernel_cut),
        &mut |address, frame| {
            stack.push((address, frame));
        },
    );
    for &(address, index) in stack.iter() {
        let frame = profile.frame(index);
        let module = if frame.inlined {
            "inlined"
        } else {
            profile.text(frame.module)
        };
        writeln!(
            out,
            "\t{address:>16x} {} ({module})",
            profile.text(frame.name)
        )?;
    }
    out.write_all(b"\n")?;
    Ok(())
}
