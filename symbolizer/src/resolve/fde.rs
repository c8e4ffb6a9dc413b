//! Where functions begin and end by the tables for unwinding, which stripping leaves. They know no names.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};

use super::file_offset::Svma;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::section;

/// Functions that are read at most.
const MAX_FUNCTIONS: usize = 1 << 22;

/// Ranges of functions, sorted.
#[derive(Debug, Default)]
pub(super) struct FunctionBounds {
    ranges: Vec<(Svma, Svma)>,
}

impl FunctionBounds {
    /// The bounds that `.eh_frame` states, of the first of these files that has it: debug files do not, packed ones do.
    pub(super) fn of(files: &[&ElfFile]) -> Self {
        let mut read = files.iter().filter_map(|file| read(file));
        let ranges = read.find(|ranges| !ranges.is_empty());
        Self {
            ranges: ranges.unwrap_or_default(),
        }
    }

    /// The function that contains `address`.
    pub(super) fn find(&self, address: Svma) -> Option<(Svma, Svma)> {
        let after = self.ranges.partition_point(|&(start, _)| start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.1).then_some(*range)
    }
}

fn read(file: &ElfFile) -> Option<Vec<(Svma, Svma)>> {
    let found = file.section(".eh_frame")?;
    let content = section::content(file, found).ok()?;
    let endian = if file.big_endian {
        RunTimeEndian::Big
    } else {
        RunTimeEndian::Little
    };
    let mut table = EhFrame::from(EndianSlice::new(&content, endian));
    table.set_address_size(file.class / 8);
    let svma = |name: &str| file.section(name).map_or(0, |section| section.svma);
    let bases = BaseAddresses::default()
        .set_eh_frame(found.svma)
        .set_text(svma(".text"))
        .set_got(svma(".got"));
    let mut ranges = Vec::new();
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next()
        && ranges.len() < MAX_FUNCTIONS
    {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(row) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let start = row.initial_address();
        if let Some(end) = start.checked_add(row.len()).filter(|&end| end > start) {
            ranges.push((Svma(start), Svma(end)));
        }
    }
    ranges.sort_unstable();
    Some(ranges)
}
