//! What is said at the end.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use rawstack_format::record::{Drop, DropReason, State};

use crate::copies::CopyCounts;
use crate::jit::JitCounts;

/// A recording that has ended.
#[derive(Debug, Default)]
pub struct Summary {
    /// The archive, or the name that numbers were put into.
    pub path: PathBuf,
    /// There are several, with numbers in their names.
    pub is_numbered: bool,
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
    /// Copies of stacks.
    pub copies: CopyCounts,
    /// Whether only words of them were kept that may be addresses.
    pub copy_addresses_only: bool,
    /// Processes with samples.
    pub processes: u64,
    /// Threads with samples.
    pub threads: u64,
    /// Modules with frames.
    pub modules: usize,
    /// Paths of those that are files and have no build ID.
    pub without_build_id: Vec<String>,
    /// What of other processes could not be read, and why; empty for nothing.
    pub unread: String,
    /// Tasks that should have been recorded and found no room among the targets.
    pub targets_lost: u64,
    /// The kernel hid its addresses.
    pub kernel_hidden: bool,
    /// JIT maps of processes.
    pub jit: JitCounts,
    /// The recording ended because the archive had the length that was allowed.
    pub limited_by_size: bool,
    /// Archives written.
    pub archives: u64,
    /// Their length, all together, in bytes.
    pub bytes: u64,
    /// Samples in them: a flight recorder writes some not at all, and some several times.
    pub written: u64,
    /// Start, monotonic clock.
    pub start_ns: u64,
    /// Why a run could not begin that was asked for.
    pub run_error: Option<String>,
    /// What could not be written or synced.
    pub(crate) unwritten: Unwritten,
    /// Exit status of the command as from `wait`.
    pub command_status: Option<i32>,
}

/// What is missing because of the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwritten {
    /// What the system said last, where it refused to write.
    pub(crate) why: Option<String>,
    /// Samples that were left when the recording ended; `None`: nothing was, and the archive has its end.
    pub(crate) left: Option<u64>,
    /// Why the disk did not confirm what was written.
    pub(crate) unsynced: Option<String>,
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
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
    /// The archives, as a shell takes them.
    fn shown_path(&self) -> String {
        let path = &self.path;
        if !self.is_numbered {
            return path.display().to_string();
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = path
            .extension()
            .map(|extension| format!(".{}", extension.to_string_lossy()))
            .unwrap_or_default();
        path.with_file_name(format!("{stem}.*{extension}"))
            .display()
            .to_string()
    }

    fn bytes_per_sample(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ratio = self.bytes as f64 / self.written.max(1) as f64;
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

    /// What is missing in the archives, because of the disk or because a run could not begin, why, and what to do; in one
    /// line.
    pub fn missing(&self) -> Option<String> {
        let gap = self.drops.iter().find(|drop| {
            drop.reason == DropReason::Unwritten && drop.count > 0 && !self.limited_by_size
        });
        let Unwritten {
            why,
            left,
            unsynced,
        } = &self.unwritten;
        let seconds = |time_ns: u64| {
            Duration::from_nanos(time_ns.saturating_sub(self.start_ns)).as_secs_f64()
        };
        let mut parts = Vec::new();
        if let Some(gap) = gap {
            let (count, from, to) = (grouped(gap.count), seconds(gap.from_ns), seconds(gap.to_ns));
            parts.push(format!(
                "{count} samples between {from:.1} s and {to:.1} s are missing"
            ));
        }
        if let Some(left) = left {
            let left = grouped(*left);
            parts.push(format!("the last {left} samples and the end are missing"));
        }
        let why = why.as_deref().unwrap_or("it takes too long");
        let path = self.path.display();
        match (parts.is_empty(), unsynced) {
            (true, None) => self.run_error.clone(),
            (true, Some(why)) => Some(format!(
                "failed to sync {path}: {why}; check the disk, and the archive with `rawstack verify`"
            )),
            (false, _) => Some(format!(
                "failed to write {path}: {why}: {}; what is there is whole and can be read; find room for more",
                parts.join(", and ")
            )),
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
        if let Some(text) = self.copies.text(self.copy_addresses_only) {
            writeln!(f, "copies      {text}")?;
        }
        writeln!(
            f,
            "from        {} processes, {} threads",
            grouped(self.processes),
            grouped(self.threads)
        )?;
        writeln!(f, "modules     {}", self.modules())?;
        if !self.unread.is_empty() {
            writeln!(f, "unread      {}", self.unread)?;
        }
        if self.targets_lost > 0 {
            let lost = grouped(self.targets_lost);
            writeln!(
                f,
                "not seen    {lost} processes and threads: too many to follow at once; name a cgroup, or record all"
            )?;
        }
        if self.kernel_hidden {
            writeln!(
                f,
                "kernel      its addresses are hidden (kernel.kptr_restrict, CAP_SYSLOG): no kernel names"
            )?;
        }
        if let Some(text) = self.jit.text() {
            writeln!(f, "jit maps    {text}")?;
        }
        let (bytes, each) = (grouped(self.bytes), self.bytes_per_sample());
        let end = if self.limited_by_size {
            "; ended at the size that was allowed"
        } else {
            ""
        };
        match self.archives {
            0 | 1 => writeln!(f, "archive     {bytes} bytes, {each:.2} a sample{end}")?,
            more => {
                let samples = grouped(self.written);
                writeln!(
                    f,
                    "archives    {more}: {samples} samples in {bytes} bytes, {each:.2} a sample"
                )?;
            }
        }
        write!(f, "look at it  rawstack report {}", self.shown_path())
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
            written: 12_345,
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

    /// Check that what the disk did not take is told with its times and its cause, and that a size that was asked for is
    /// no failure.
    #[test]
    fn missing() {
        let mut summary = Summary {
            path: "/x/app.rawstack".into(),
            start_ns: 1_000_000_000,
            drops: vec![Drop {
                reason: DropReason::Unwritten,
                count: 1234,
                from_ns: 4_200_000_000,
                to_ns: 7_900_000_000,
                ..Drop::default()
            }],
            ..Summary::default()
        };
        assert_eq!(
            summary.missing().unwrap(),
            "failed to write /x/app.rawstack: it takes too long: 1,234 samples between 3.2 s and 6.9 s are \
             missing; what is there is whole and can be read; find room for more"
        );
        summary.unwritten = Unwritten {
            why: Some("No space left on device (os error 28)".to_owned()),
            left: Some(5),
            unsynced: None,
        };
        let text = summary.missing().unwrap();
        assert!(
            text.contains("No space left") && text.contains("the last 5 samples and the end"),
            "{text}"
        );
        summary.unwritten = Unwritten::default();
        summary.limited_by_size = true;
        assert_eq!(summary.missing(), None);
        summary.is_numbered = true;
        assert_eq!(summary.shown_path(), "/x/app.*.rawstack");
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
