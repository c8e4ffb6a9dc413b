//! File offset → SVMA, by the module's PT_LOAD segments. Knows no symbols and no processes.

use rawstack_format::id::FileOffset;
use rawstack_format::record::Segment;

use crate::debug_file::elf::PF_X;

/// Address as the ELF and DWARF of a module state it, before it is loaded anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Svma(pub u64);

/// What the number of a code address stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    /// The instruction itself.
    Exact,
    /// The instruction behind a call.
    Return,
}

/// The offset to look up: of a return address the byte before it, which belongs to the call.
///
/// A call that never returns is the last instruction of its function, so the return address itself may lie in the
/// next function. This is the only place that subtracts.
pub fn lookup_offset(offset: FileOffset, kind: AddressKind) -> FileOffset {
    match kind {
        AddressKind::Exact => offset,
        AddressKind::Return => FileOffset(offset.0.wrapping_sub(1)),
    }
}

/// Translate `offset`, or `None` if no segment holds it.
///
/// The difference `vaddr - offset` may change from segment to segment (lld's `--rosegment`, gaps between segments),
/// so the translation goes through the segment that holds the offset: by its size in the file, for `.bss` has no
/// offsets. Executable segments go first where several hold it. A mapping starts at a page boundary, so an offset may
/// precede its segment by less than a page: that is the second try, with the page size of the recorded host.
pub fn to_svma(segments: &[Segment], offset: FileOffset, page_size: u32) -> Option<Svma> {
    let by_code = |code: bool| {
        segments
            .iter()
            .filter(move |segment| (segment.flags & PF_X != 0) == code)
    };
    let exact = by_code(true).chain(by_code(false)).find_map(|segment| {
        let within = offset.0.checked_sub(segment.offset.0)?;
        (within < segment.file_size).then_some(())?;
        segment.vaddr.checked_add(within).map(Svma)
    });
    exact.or_else(|| {
        let page = u64::from(page_size.max(4096));
        by_code(true).find_map(|segment| {
            let before = segment.offset.0.checked_sub(offset.0)?;
            (before <= segment.offset.0 % page).then_some(())?;
            segment.vaddr.checked_sub(before).map(Svma)
        })
    })
}

/// The way back, for numbers that were given as addresses.
pub fn to_offset(segments: &[Segment], svma: Svma) -> Option<FileOffset> {
    segments.iter().find_map(|segment| {
        let within = svma.0.checked_sub(segment.vaddr)?;
        (within < segment.file_size).then_some(())?;
        segment.offset.0.checked_add(within).map(FileOffset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, vaddr: u64, file_size: u64, flags: u32) -> Segment {
        Segment {
            offset: FileOffset(offset),
            vaddr,
            file_size,
            flags,
        }
    }

    /// Check that the second segment's own bias is used across an SVMA gap, and the way back too.
    #[test]
    fn svma_gap_between_segments() {
        let segments = [
            segment(0, 0, 0x1000, 4),
            segment(0x1000, 0x20_1000, 0x500, 5),
        ];
        assert_eq!(
            to_svma(&segments, FileOffset(0x1010), 4096),
            Some(Svma(0x20_1010))
        );
        assert_eq!(
            to_offset(&segments, Svma(0x20_1010)),
            Some(FileOffset(0x1010))
        );
        assert_eq!(to_svma(&segments, FileOffset(0x1500), 4096), None);
    }

    /// Check that an offset in the page before a segment's start is found, with the recorded host's page size.
    #[test]
    fn page_before_segment() {
        let segments = [segment(0x1_2340, 0x41_2340, 0x500, 5)];
        assert_eq!(
            to_svma(&segments, FileOffset(0x1_2000), 4096),
            Some(Svma(0x41_2000))
        );
        assert_eq!(to_svma(&segments, FileOffset(0x1_1000), 4096), None);
        assert_eq!(
            to_svma(&segments, FileOffset(0x1_1000), 65536),
            Some(Svma(0x41_1000))
        );
    }

    /// Check that an executable segment wins over a data segment that holds the same offset.
    #[test]
    fn executable_segment_first() {
        let segments = [
            segment(0, 0x1000, 0x2000, 6),
            segment(0x1000, 0x9000, 0x1000, 5),
        ];
        assert_eq!(
            to_svma(&segments, FileOffset(0x1800), 4096),
            Some(Svma(0x9800))
        );
    }

    /// Check that a return address is looked up at the call before it, and an exact one at itself.
    #[test]
    fn minus_one_for_callers() {
        assert_eq!(
            lookup_offset(FileOffset(0x10), AddressKind::Return),
            FileOffset(0xf)
        );
        assert_eq!(
            lookup_offset(FileOffset(0x10), AddressKind::Exact),
            FileOffset(0x10)
        );
    }
}
