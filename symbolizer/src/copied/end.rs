//! How far unwinding came, and how often. Knows no archive.

use std::collections::BTreeMap;

use rawstack_format::copies::CopyLoss;

use crate::unwind::{Contradiction, End, ModuleId};

/// How the user half of a sample ended, in an archive with copies. `M` stands for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyEnd<M> {
    /// At the outermost frame, by the rules of its module.
    Outermost,
    /// At a return address, or a frame pointer, of 0: nothing says that it is the outermost frame.
    Zero,
    /// Where the copy ends.
    CopyEnds,
    /// In a module without unwind information, or in code that belongs to none.
    NoUnwindInfo(Option<M>),
    /// Something cannot be.
    Contradiction(Contradiction),
    /// At the limit of frames.
    TooDeep,
    /// There is no copy, and why.
    Lost(CopyLoss),
    /// There is no copy, and nothing says why.
    NoCopy,
}

impl CopyEnd<ModuleId> {
    /// The end of a walk.
    pub(super) fn of(end: End) -> Self {
        match end {
            End::Outermost => Self::Outermost,
            End::Zero => Self::Zero,
            End::CopyEnds => Self::CopyEnds,
            End::NoUnwindInfo(id) => Self::NoUnwindInfo(id),
            End::Contradiction(what) => Self::Contradiction(what),
            End::TooDeep => Self::TooDeep,
        }
    }
}

impl<M> CopyEnd<M> {
    /// The same with another module.
    pub(crate) fn map<N>(self, module: impl FnOnce(M) -> N) -> CopyEnd<N> {
        match self {
            Self::Outermost => CopyEnd::Outermost,
            Self::Zero => CopyEnd::Zero,
            Self::CopyEnds => CopyEnd::CopyEnds,
            Self::NoUnwindInfo(held) => CopyEnd::NoUnwindInfo(held.map(module)),
            Self::Contradiction(what) => CopyEnd::Contradiction(what),
            Self::TooDeep => CopyEnd::TooDeep,
            Self::Lost(loss) => CopyEnd::Lost(loss),
            Self::NoCopy => CopyEnd::NoCopy,
        }
    }

    /// Whether the stack is as long as it can be known to be.
    pub fn is_reached(&self) -> bool {
        matches!(self, Self::Outermost | Self::Zero)
    }

    /// Name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Outermost => "outermost",
            Self::Zero => "zero",
            Self::CopyEnds => "copy_ends",
            Self::NoUnwindInfo(_) => "no_unwind_info",
            Self::Contradiction(_) => "contradiction",
            Self::TooDeep => "too_deep",
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

    /// How many of them are as long as they can be known to be.
    pub fn reached(&self) -> u64 {
        let reached = self.iter().filter(|(end, _)| end.is_reached());
        reached.map(|(_, count)| count).sum()
    }
}
