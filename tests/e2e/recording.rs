//! One recording of a workload: what all tests here start from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rawstack_test_support::json::{self, Info, Sample, rawstack_on};
use rawstack_test_support::programs::{rawstack_record, require_root, temp_dir};
use rawstack_test_support::turn::{Turn, take_turn};
use rawstack_test_support::{Output, Run};
use tempfile::TempDir;

/// Some 100 ms of work for a shell, less on a quick machine: enough to be met.
pub(crate) const SPIN: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

/// How long one recording may take, in all.
const DEADLINE: Duration = Duration::from_secs(120);

/// A turn of the machine and a folder for what is recorded in it.
#[derive(Debug)]
pub(crate) struct Lab {
    _turn: Turn,
    dir: TempDir,
}

impl Lab {
    /// Wait for the turn.
    pub(crate) fn new() -> Self {
        require_root();
        Self {
            _turn: take_turn(),
            dir: temp_dir(),
        }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `rawstack-record -o ARCHIVE OPTIONS…`, to be given more arguments.
    pub(crate) fn recorder(&self, archive: &str, options: &[&str]) -> Run {
        let run = Run::new(rawstack_record())
            .arg("-o")
            .arg(self.path(archive));
        run.args(options)
            .deadline(DEADLINE)
            .current_dir(self.dir.path())
    }

    /// Record `command` with `options` to its end, which must be exit code 0.
    pub(crate) fn record(&self, options: &[&str], command: &[&str]) -> Recording {
        let output = self
            .recorder("archive.rawstack", options)
            .arg("--")
            .args(command)
            .success();
        Recording::new(self.path("archive.rawstack"), output)
    }
}

/// An archive, and what the recorder said.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// The recorder's output; the command's stands in it too.
    pub(crate) output: Output,
    /// What the archive holds.
    pub(crate) info: Info,
}

impl Recording {
    /// Processes with samples.
    pub(crate) fn pids(&self) -> BTreeSet<u32> {
        let samples = self.samples();
        samples.iter().map(|sample| sample.pid).collect()
    }

    /// Look at an archive that must be whole.
    pub(crate) fn new(archive: PathBuf, output: Output) -> Self {
        let info = json::info(&archive);
        assert!(
            info.damage.is_empty(),
            "damaged: {:?}\n{}",
            info.damage,
            output.stderr
        );
        rawstack_on("verify", &archive).success();
        info.ids.assert_sum();
        Self {
            archive,
            output,
            info,
        }
    }

    /// Fail unless user stacks were taken on the return to user space.
    pub(crate) fn assert_deferred(&self) {
        let release = &self.info.host.get("kernel_release");
        assert_eq!(
            self.info.mode, "deferred",
            "needs Linux 6.18 or newer, this is {release:?}"
        );
    }

    /// All samples.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let samples = json::samples(&self.archive);
        let read = u64::try_from(samples.len()).unwrap_or(u64::MAX);
        assert_eq!(read, self.info.samples, "info and dump count differently");
        assert!(read > 0, "no sample at all\n{}", self.output.stderr);
        samples
    }

    /// Samples that ended in `state`.
    pub(crate) fn samples_in(&self, state: &str) -> Vec<Sample> {
        self.samples()
            .into_iter()
            .filter(|sample| sample.state == state)
            .collect()
    }

    /// The number behind `word` in what the command printed: `drops 12 out 11`.
    pub(crate) fn printed(&self, word: &str) -> u64 {
        let words: Vec<&str> = self.output.stdout.split_whitespace().collect();
        let at = words.iter().position(|other| *other == word);
        at.and_then(|at| words.get(at + 1)?.parse().ok())
            .unwrap_or_else(|| panic!("no {word} in the output: {}", self.output.stdout))
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str()
        .unwrap_or_else(|| panic!("{} is no text", path.display()))
}

/// `part` of `whole` in percent; 0 of nothing.
pub(crate) fn percent(part: usize, whole: usize) -> f64 {
    let (part, whole) = (u32::try_from(part), u32::try_from(whole));
    match (part, whole) {
        (Ok(part), Ok(whole)) if whole > 0 => f64::from(part) * 100.0 / f64::from(whole),
        _ => 0.0,
    }
}
