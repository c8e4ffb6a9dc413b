//! What is told of JIT maps at the end of a recording.

use std::collections::BTreeMap;

use super::request::Refusal;
use super::track::Track;

/// Files that were read, and those that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitCounts {
    /// Files that were read.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files of which not all is in the archive.
    pub cut: u64,
    /// Processes that ran code of their own making and have no map in the archive, by the reason.
    pub without: BTreeMap<Refusal, u64>,
}

impl JitCounts {
    /// Count a program whose files are `tracks`.
    pub(super) fn add(&mut self, tracks: &[Track]) {
        let read = || tracks.iter().filter(|track| track.kept > 0);
        self.files += read().count() as u64;
        self.cut += read().filter(|track| track.is_cut).count() as u64;
        if read().next().is_none() {
            let refusals = tracks.iter().filter_map(|track| track.refusal);
            // That one is absent says less than what is wrong with another.
            let reason = refusals.max().unwrap_or(Refusal::Absent);
            *self.without.entry(reason).or_default() += 1;
        }
    }

    /// For people; nothing where no process made code.
    pub(crate) fn text(&self) -> Option<String> {
        let without: u64 = self.without.values().sum();
        if self.files + without == 0 {
            return None;
        }
        let mut text = format!("{} read, {} bytes", self.files, self.bytes);
        if self.cut > 0 {
            text.push_str(&format!("; {} not to the end", self.cut));
        }
        if without > 0 {
            let reasons = self.without.iter();
            let reasons: Vec<_> = reasons
                .map(|(reason, count)| format!("{count}: {}", reason.text()))
                .collect();
            text.push_str(&format!(
                "; {without} processes with code of their own making have none ({})",
                reasons.join("; ")
            ));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing is said of maps where there was no code to name, and what is missing is said with its reason.
    #[test]
    fn told() {
        assert_eq!(JitCounts::default().text(), None);
        let counts = JitCounts {
            files: 1,
            bytes: 10,
            cut: 1,
            without: BTreeMap::from([(Refusal::Absent, 2), (Refusal::Link, 1)]),
        };
        assert_eq!(
            counts.text().unwrap(),
            "1 read, 10 bytes; 1 not to the end; 3 processes with code of their own making have none \
             (2: there is none; 1: the path leads through a symbolic link)"
        );
    }
}
