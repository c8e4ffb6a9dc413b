//! What is said at the end.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use rawstack_format::record::{Drop, State};

use crate::jit::JitCounts;

/// A recording that has ended.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The archive.
    pub path: PathBuf,
    /// How long it took.
    pub duration: Duration,
    /// `deferred`, `immediate`, `off`.
    pub mode: &'static str,
    /// Why that mode ran.
    pub mode_reason: String,
    /// Event with its rate.
    pub event: String,
    /// Samples in the archive.
    pub samples: u64,
    /// IDs that the kernel reserved.
    pub reserved: u64,
    /// IDs by state, in the order of [`State::ALL`].
    pub states: [u64; 8],
    /// Losses by reason.
    pub drops: Vec<Drop>,
    /// Processes with samples.
    pub processes: u64,
    /// Threads with samples.
    pub threads: u64,
    /// Modules with frames.
    pub modules: usize,
    /// Paths of those that are files and have no build ID.
    pub without_build_id: Vec<String>,
    /// The kernel hid its addresses.
    pub kernel_hidden: bool,
    /// JIT maps of processes.
    pub jit: JitCounts,
    /// Length of the archive, in bytes.
    pub bytes: u64,
    /// Exit status of the command as from `wait`.
    pub command_status: Option<i32>,
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Summary {
    fn bytes_per_sample(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ratio = self.bytes as f64 / self.samples.max(1) as f64;
        ratio
    }

    fn states(&self) -> String {
        let counts = State::ALL
            .iter()
            .zip(self.states)
            .filter(|(_, count)| *count > 0);
        let parts: Vec<_> = counts
            .map(|(state, count)| format!("{} {}", grouped(count), state.name()))
            .collect();
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        }
    }

    fn losses(&self) -> String {
        let loss = |drop: &Drop| {
            let seconds =
                Duration::from_nanos(drop.to_ns.saturating_sub(drop.from_ns)).as_secs_f64();
            format!(
                "{} {} within {seconds:.1} s",
                grouped(drop.count),
                drop.reason.name()
            )
        };
        let parts: Vec<_> = self.drops.iter().map(loss).collect();
        if parts.is_empty() {
            "nothing".to_owned()
        } else {
            parts.join(", ")
        }
    }

    fn modules(&self) -> String {
        const SHOWN: usize = 3;
        let without = &self.without_build_id;
        let mut text = format!("{}, {} without build ID", self.modules, without.len());
        if !without.is_empty() {
            let shown = without
                .iter()
                .take(SHOWN)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let more = if without.len() > SHOWN { ", …" } else { "" };
            text.push_str(&format!(" ({shown}{more})"));
        }
        text
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.duration.as_secs_f64();
        writeln!(
            f,
            "recorded    {} samples in {seconds:.1} s, {}",
            grouped(self.samples),
            self.event
        )?;
        writeln!(f, "user stacks {}: {}", self.mode, self.mode_reason)?;
        writeln!(
            f,
            "IDs         {} reserved: {}",
            grouped(self.reserved),
            self.states()
        )?;
        writeln!(f, "lost        {}", self.losses())?;
        writeln!(
            f,
            "from        {} processes, {} threads",
            grouped(self.processes),
            grouped(self.threads)
        )?;
        writeln!(f, "modules     {}", self.modules())?;
        if self.kernel_hidden {
            writeln!(
                f,
                "kernel      its addresses are hidden (kernel.kptr_restrict, CAP_SYSLOG): no kernel names"
            )?;
        }
        if let Some(text) = self.jit.text() {
            writeln!(f, "jit maps    {text}")?;
        }
        writeln!(
            f,
            "archive     {} bytes, {:.2} a sample",
            grouped(self.bytes),
            self.bytes_per_sample()
        )?;
        write!(f, "look at it  rawstack report {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every part of the contract stands in the summary.
    #[test]
    fn parts() {
        let summary = Summary {
            path: "x.rawstack".into(),
            samples: 12_345,
            reserved: 12_346,
            states: [12_345, 0, 0, 0, 0, 0, 1, 0],
            drops: vec![Drop {
                count: 1,
                to_ns: 100_000_000,
                ..Drop::default()
            }],
            modules: 5,
            without_build_id: ["/a", "/b", "/c", "/d"].map(str::to_owned).to_vec(),
            bytes: 41_000,
            ..Summary::default()
        };
        let text = summary.to_string();
        for part in [
            "12,345 samples",
            "12,346 reserved: 12,345 complete, 1 dropped",
            "1 buffer-full within 0.1 s",
            "5, 4 without build ID (/a, /b, /c, …)",
            "41,000 bytes, 3.32 a sample",
            "rawstack report x.rawstack",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    /// Check that nothing lost is said as such.
    #[test]
    fn nothing_lost() {
        assert!(
            Summary::default()
                .to_string()
                .contains("lost        nothing")
        );
    }
}
