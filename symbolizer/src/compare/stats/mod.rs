//! Is a cost higher in one group of runs than in another, and how sure is that. Numbers only: no names, no files.
//!
//! A run counts x samples of a function under exposure e (its work); its rate is x / e. The variance of rates has three
//! parts: chance of sampling, ticks of one run that depend on each other, and runs that differ. The last two are
//! learned from all functions together ([`noise`]), since a handful of runs says too little of one. The method is that
//! of differential expression analysis, where counts of thousands of genes in a few samples pose the same problem.

pub mod adjust;
pub mod family;
pub mod noise;
pub mod scale;
mod student;
pub mod test;

#[cfg(test)]
pub(super) mod simulation;

pub use adjust::adjusted;
pub use family::{Counts, Judged, Strictness};
pub use noise::{Item, Moments, Noise};
pub use scale::size_factors;
pub use test::{Margin, Tested};
