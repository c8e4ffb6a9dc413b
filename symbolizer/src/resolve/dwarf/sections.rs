//! The DWARF sections of a file that a resolver needs, decompressed where they are compressed.

use std::borrow::Cow;

use gimli::{DwarfPackage, RunTimeEndian, SectionId};
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

/// What is read of split units: their sections are named `.dwo` at the end. A package's index tells parts of all of
/// them, so that none may be missing, though not all are looked into.
const NEEDED_OF_SPLIT: [SectionId; 13] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugRngLists,
    SectionId::DebugCuIndex,
    SectionId::DebugTuIndex,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
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
        Self::load_named(file, &NEEDED, |id| id.name())
    }

    /// Take the sections out of an object file or a package of split units.
    pub(crate) fn load_split(file: &'a ElfFile) -> Result<Self, SectionError> {
        let name = |id: &SectionId| id.dwo_name().unwrap_or_default();
        Self::load_named(file, &NEEDED_OF_SPLIT, name)
    }

    fn load_named(
        file: &'a ElfFile,
        needed: &[SectionId],
        name: impl Fn(&SectionId) -> &'static str + Sync,
    ) -> Result<Self, SectionError> {
        let contents = needed
            .par_iter()
            .map(|id| file.debug_section(name(id)).map(|content| (*id, content)))
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

    /// Bytes of the units' entries.
    pub(crate) fn entries_size(&self) -> usize {
        let entries = self
            .contents
            .iter()
            .find(|(id, _)| *id == SectionId::DebugInfo);
        entries.map_or(0, |(_, content)| content.len())
    }

    /// Let go of the memory of all of them.
    pub(crate) fn release_all(self) {
        for (_, content) in &self.contents {
            self.file.release(content);
        }
    }

    /// As gimli wants them.
    pub(crate) fn borrow(&'a self) -> gimli::Dwarf<Slice<'a>> {
        let of = |id| Ok::<_, gimli::Error>(self.section(id));
        gimli::Dwarf::load(of).unwrap_or_default()
    }

    /// As a package of split units; nothing where its index is damaged.
    pub(crate) fn package(&'a self) -> Option<DwarfPackage<Slice<'a>>> {
        let of = |id| Ok::<_, gimli::Error>(self.section(id));
        DwarfPackage::load(of, Slice::new(&[], self.endian)).ok()
    }

    fn section(&'a self, id: SectionId) -> Slice<'a> {
        let content = self.contents.iter().find(|(held, _)| *held == id);
        Slice::new(content.map_or(&[], |(_, bytes)| bytes), self.endian)
    }
}
