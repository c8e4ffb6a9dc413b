//! The DWARF sections of a file that a resolver needs, decompressed where they are compressed.

use std::borrow::Cow;

use gimli::{RunTimeEndian, SectionId};
use rayon::prelude::*;

use super::Slice;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::section::SectionError;

/// What is read; location lists, macros, types and frame tables are not.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugStr,
    SectionId::DebugAbbrev,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugAranges,
    SectionId::DebugAddr,
    SectionId::DebugLineStr,
    SectionId::DebugStrOffsets,
];

/// Contents of the needed sections.
#[derive(Debug)]
pub(crate) struct DwarfSections<'a> {
    contents: Vec<(SectionId, Cow<'a, [u8]>)>,
    endian: RunTimeEndian,
    file: &'a ElfFile,
}

impl<'a> DwarfSections<'a> {
    /// Take the sections out of `file`, compressed ones in parallel.
    pub(crate) fn load(file: &'a ElfFile) -> Result<Self, SectionError> {
        let contents = NEEDED
            .par_iter()
            .map(|&id| file.debug_section(id.name()).map(|content| (id, content)))
            .collect::<Result<_, _>>()?;
        let endian = if file.big_endian {
            RunTimeEndian::Big
        } else {
            RunTimeEndian::Little
        };
        Ok(Self {
            contents,
            endian,
            file,
        })
    }

    /// Let go of the memory that holds `part` of a section, where it was mapped and not decompressed.
    pub(crate) fn release(&self, part: &[u8]) {
        self.file.release(part);
    }

    /// Let go of the memory of all of them.
    pub(crate) fn release_all(self) {
        for (_, content) in &self.contents {
            self.file.release(content);
        }
    }

    /// As gimli wants them.
    pub(crate) fn borrow(&'a self) -> gimli::Dwarf<Slice<'a>> {
        let of = |id: SectionId| -> Result<Slice<'a>, gimli::Error> {
            let content = self.contents.iter().find(|(held, _)| *held == id);
            Ok(Slice::new(
                content.map_or(&[], |(_, bytes)| bytes),
                self.endian,
            ))
        };
        gimli::Dwarf::load(of).unwrap_or_default()
    }
}
