//! Small branches of the tree of stacks, cut off: what ran in them counts for the function that called into them.

use std::io::Write;

use super::exporter::{ExportSample, Exporter, Source};
use super::prefix::PrefixTree;
use crate::error::Result;
use crate::symbolized::{Located, SymbolizedProfile};

/// The weight of each branch, whatever thread it ran in. Gets all samples before any of them is cut.
#[derive(Debug, Default)]
pub(super) struct Branches {
    tree: PrefixTree,
    /// Weight of all stacks through each node.
    weights: Vec<u64>,
    total: u64,
}

impl Branches {
    /// The node of a stack's leaf. Functions inlined into one another are one, as their address is.
    fn leaf(&mut self, profile: &SymbolizedProfile, sample: &ExportSample<'_>) -> Option<u32> {
        let name = |chain: &[Located]| chain.last().map(|outer| profile.frame(outer.named).name.0);
        let names: Vec<u32> = sample.chains().filter_map(name).collect();
        self.tree.add(names.into_iter().rev())
    }

    /// The stack without the branch that is below `least`; its outermost function stays in any case.
    fn cut<'s>(
        &mut self,
        profile: &SymbolizedProfile,
        sample: &ExportSample<'s>,
        least: f64,
    ) -> &'s [Located] {
        let Some(leaf) = self.leaf(profile, sample) else {
            return sample.stack;
        };
        let is_small = |node: u32| {
            let weight = self.weights.get(node as usize).copied();
            (weight.unwrap_or(0) as f64) < least
        };
        let small = self.tree.path(leaf).take_while(|&node| is_small(node));
        let levels = sample.chains().count();
        let gone = small.count().min(levels.saturating_sub(1));
        let frames: usize = sample.chains().take(gone).map(<[Located]>::len).sum();
        sample.stack.get(frames..).unwrap_or_default()
    }
}

impl Exporter for Branches {
    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        _: &mut dyn Write,
    ) -> Result<()> {
        self.total = self.total.saturating_add(sample.weight);
        if let Some(leaf) = self.leaf(source.profile, sample) {
            for node in self.tree.path(leaf) {
                let node = node as usize;
                self.weights.resize(self.weights.len().max(node + 1), 0);
                if let Some(weight) = self.weights.get_mut(node) {
                    *weight = weight.saturating_add(sample.weight);
                }
            }
        }
        Ok(())
    }
}

/// Hands samples on with what is small cut off.
pub(super) struct Cut<'e> {
    branches: Branches,
    /// Weight below which a branch is cut.
    least: f64,
    exporter: &'e mut dyn Exporter,
}

impl<'e> Cut<'e> {
    /// Cut branches below `percent` of the total.
    pub(super) fn new(branches: Branches, percent: f64, exporter: &'e mut dyn Exporter) -> Self {
        Self {
            least: branches.total as f64 * percent / 100.0,
            branches,
            exporter,
        }
    }
}

impl Exporter for Cut<'_> {
    fn start(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        self.exporter.start(source, out)
    }

    fn sample(
        &mut self,
        source: &Source<'_>,
        sample: &ExportSample<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let stack = self.branches.cut(source.profile, sample, self.least);
        let cut = ExportSample { stack, ..*sample };
        self.exporter.sample(source, &cut, out)
    }

    fn finish(&mut self, source: &Source<'_>, out: &mut dyn Write) -> Result<()> {
        self.exporter.finish(source, out)
    }
}
