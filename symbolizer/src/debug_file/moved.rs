//! Files of one build whose addresses differ: `prelink` moves a library to another address and keeps its build ID.

use rawstack_format::record::{Module, ModuleKind, Segment};

use super::elf::{ElfFile, PF_X};
use super::files::ModuleFiles;

/// Keep the files that have the addresses of the one with most debug information, and remember how far these are from the
/// recorded ones.
pub(super) fn keep_one_place(module: &Module, found: &mut ModuleFiles) {
    if module.kind != ModuleKind::Elf || module.segments.is_empty() {
        return;
    }
    let first = found.files.first().map(|(_, file)| file);
    let Some(richest) = found.dwarf().or(first) else {
        return;
    };
    let moved = distance(&module.segments, richest).unwrap_or(0);
    found
        .files
        .retain(|(_, file)| distance(&module.segments, file).is_none_or(|own| own == moved));
    found.moved = moved;
}

/// How far above the addresses of `file` the recorded ones are, modulo 2⁶⁴; `None` where its code segments are others, or
/// it has none.
fn distance(recorded: &[Segment], file: &ElfFile) -> Option<u64> {
    let is_code = |segment: &&Segment| segment.flags & PF_X != 0;
    let code = |segments: &[Segment]| -> Vec<u64> {
        let code = segments.iter().filter(is_code);
        code.map(|segment| segment.vaddr).collect()
    };
    let (recorded, own) = (code(recorded), code(&file.segments));
    let mut distances = recorded
        .iter()
        .zip(&own)
        .map(|(recorded, own)| recorded.wrapping_sub(*own));
    let first = distances.next()?;
    (recorded.len() == own.len() && distances.all(|next| next == first)).then_some(first)
}
