//! How far unwinding came, and how often. Knows no archive.

use std::collections::BTreeMap;

use rawstack_format::copies::CopyLoss;

use crate::unwind::End;

/// How the user half of a sample ended, in an archive with copies. `M` stands for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyEnd<M> {
    /// As the unwinding of its copy did.
    Unwound(End<M>),
    /// There is no copy, and why.
    Lost(CopyLoss),
    /// There is no copy, and nothing says why.
    NoCopy,
}

impl<M> CopyEnd<M> {
    /// The same with another module.
    pub(crate) fn map<N>(self, module: impl FnOnce(M) -> N) -> CopyEnd<N> {
        match self {
            Self::Unwound(end) => CopyEnd::Unwound(end.map(module)),
            Self::Lost(loss) => CopyEnd::Lost(loss),
            Self::NoCopy => CopyEnd::NoCopy,
        }
    }

    /// Whether the stack is as long as it can be known to be.
    pub fn is_reached(&self) -> bool {
        matches!(self, Self::Unwound(End::Outermost | End::Zero))
    }

    /// Name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unwound(end) => end.name(),
            Self::Lost(_) | Self::NoCopy => "no_copy",
        }
    }
}

/// User halves by how they ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndCounts<M> {
    counts: BTreeMap<CopyEnd<M>, u64>,
}

impl<M> Default for EndCounts<M> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
        }
    }
}

impl<M: Copy + Ord> EndCounts<M> {
    /// Count one more.
    pub fn add(&mut self, end: CopyEnd<M>) {
        *self.counts.entry(end).or_default() += 1;
    }

    /// Count so many more.
    pub(crate) fn add_many(&mut self, end: CopyEnd<M>, count: u64) {
        *self.counts.entry(end).or_default() += count;
    }

    /// All, by end.
    pub fn iter(&self) -> impl Iterator<Item = (CopyEnd<M>, u64)> {
        self.counts.iter().map(|(&end, &count)| (end, count))
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// How many ended as `is` says.
    pub fn count(&self, is: impl Fn(&CopyEnd<M>) -> bool) -> u64 {
        let counts = self.counts.iter().filter(|(end, _)| is(end));
        counts.map(|(_, count)| count).sum()
    }

    /// How many of them are as long as they can be known to be.
    pub fn reached(&self) -> u64 {
        self.count(CopyEnd::is_reached)
    }
}
