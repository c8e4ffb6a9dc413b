//! The layout tripwire: sizes and alignments of every archived type, held at compile time. rkyv has no schema
//! evolution, so what changes here is a new version of the kind, in a new module.
//!
//! Every size is the sum of the fields' sizes: nothing has padding, through which memory could leak into an archive.

use super::batch::ArchivedBatchRoot;
use super::blobs::ArchivedBlobs;
use super::copies::ArchivedStackCopiesRoot;
use super::copies::extents::ArchivedExtents;
use super::copies::returns::ArchivedReturns;
use super::copies::rows::ArchivedRows;
use super::copies::words::ArchivedWords;
use super::kernel::{ArchivedKernelModulesRoot, ArchivedKernelSymbolsRoot, ArchivedVdsoRoot};
use super::part::ArchivedPartRoot;
use super::pieces::ArchivedJitMapRoot;
use super::recording::{ArchivedEndRoot, ArchivedRecordingRoot, ArchivedRunsRoot};
use super::samples::{ArchivedCompletions, ArchivedDrops, ArchivedSamples};
use super::stacks::{ArchivedFrames, ArchivedStacks};
use super::tables::{ArchivedMappings, ArchivedModules, ArchivedProcesses, ArchivedThreads};
use crate::index::{ArchivedEntryRoot, ArchivedIndexRoot};

/// A relative pointer and a length.
const VEC: usize = 8;

/// Hold the size of a type, as a sum over its fields, and its alignment.
macro_rules! layout {
    ($($name:ident: $size:expr, $align:expr;)*) => {
        $(const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);)*
    };
}

layout! {
    ArchivedBlobs: 4 + 2 * VEC, 4;
    ArchivedProcesses: 4 + 5 * VEC, 4;
    ArchivedThreads: 4 + 4 * VEC, 4;
    ArchivedModules: 2 * 4 + 9 * VEC, 4;
    ArchivedMappings: 4 + 10 * VEC, 4;
    ArchivedFrames: 4 + 4 * VEC, 4;
    ArchivedStacks: 4 + 2 * VEC, 4;
    ArchivedCompletions: 4 + 5 * VEC, 4;
    ArchivedDrops: 4 + 5 * VEC, 4;
    ArchivedSamples: 2 * 8 + 2 * 4 + 14 * VEC, 8;
    ArchivedBatchRoot: 4 * 4 + 44 + 36 + 80 + 84 + 20 + 36 + 20 + 44 + 44 + 136, 8;
    ArchivedRecordingRoot: 2 * 8 + 7 * 4 + 2 * VEC + 20, 8;
    ArchivedRunsRoot: 4 + 5 * VEC, 4;
    ArchivedEndRoot: 11 * 8 + 2 * 4, 8;
    ArchivedKernelSymbolsRoot: 8 + 5 * 4 + 4 * VEC + 20, 8;
    ArchivedKernelModulesRoot: 2 * 4 + 3 * VEC + 20, 4;
    ArchivedVdsoRoot: 4 + 20, 4;
    ArchivedJitMapRoot: 2 * 8 + 2 * 4 + VEC, 8;
    ArchivedRows: 2 * 4 + 12 * VEC, 4;
    ArchivedExtents: 2 * 4 + 7 * VEC, 4;
    ArchivedReturns: 4 + 3 * VEC, 4;
    ArchivedWords: 2 * 4 + 5 * VEC, 4;
    ArchivedStackCopiesRoot: 104 + 64 + 28 + 48, 4;
    ArchivedPartRoot: 8 * 8 + 5 * 4 + 6 * VEC + 20, 8;
    ArchivedEntryRoot: 3 * 8, 8;
    ArchivedIndexRoot: 4 + VEC, 4;
}
