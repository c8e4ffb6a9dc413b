//! Split DWARF: a unit in the file that is only a skeleton, and its entries in a `.dwo` file or a `.dwp` package.
//!
//! A skeleton keeps what the linker had to touch: ranges, addresses, lines. Functions and names are in the full unit, which
//! is read, asked and dropped within one visit. One that is missing leaves the skeleton's answer, and is told.

use std::path::PathBuf;

use gimli::{Dwarf, DwarfPackage, Unit};

use super::Slice;
use super::sections::DwarfSections;
use super::units::Units;
use crate::debug_file::companion::SplitSearch;
use crate::debug_file::elf::ElfFile;
use crate::text::clean_bytes;

/// Units of one object file that are looked at for the wanted one: compilers write one, or one for each part of LTO.
const MAX_UNITS: usize = 1 << 12;

/// What belongs to a module's debug information and is not in its file.
#[derive(Debug, Default)]
pub(in crate::resolve) struct Companions<'a> {
    /// What several files share (`dwz`).
    pub(in crate::resolve) alternate: Option<DwarfSections<'a>>,
    /// All split units of the module in one file.
    pub(in crate::resolve) package: Option<DwarfSections<'a>>,
    /// Where the files of single split units may be.
    pub(in crate::resolve) search: SplitSearch,
}

/// Opened companions.
pub(super) struct Pieces<'a> {
    package: Option<DwarfPackage<Slice<'a>>>,
    search: &'a SplitSearch,
}

impl<'a> Companions<'a> {
    pub(super) fn pieces(&'a self) -> Pieces<'a> {
        Pieces {
            package: self.package.as_ref().and_then(DwarfSections::package),
            search: &self.search,
        }
    }
}

/// What became of looking for the full unit of a skeleton.
pub(super) enum Split<T> {
    /// The unit is whole by itself.
    Whole,
    /// What the full unit gave, and the file that it is in, if not the package.
    Full(T, Option<PathBuf>),
    /// The full unit is in none of the places; the name of its object file.
    Missing(String),
}

impl<'a> Pieces<'a> {
    /// Ask the full unit of `skeleton` by `ask`.
    pub(super) fn ask<T>(
        &self,
        units: &Units<'a, '_>,
        skeleton: &Unit<Slice<'a>>,
        ask: impl for<'s> Fn(&Units<'s, '_>, &Unit<Slice<'s>>) -> T,
    ) -> Split<T> {
        let Some(id) = skeleton.dwo_id else {
            return Split::Whole;
        };
        let Some(name) = object_name(units, skeleton) else {
            return Split::Whole;
        };
        let packed = self.package.as_ref().and_then(|package| {
            let dwarf = package.find_cu(id, &units.dwarf).ok().flatten()?;
            ask_full(dwarf, units, skeleton, &ask)
        });
        if let Some(found) = packed {
            return Split::Full(found, None);
        }
        let comp_dir = skeleton.comp_dir.as_ref().map(|dir| dir.slice());
        let places = self.search.places(comp_dir.unwrap_or_default(), name);
        let found = places.iter().find_map(|place| {
            if !place.is_file() {
                return None;
            }
            let file = ElfFile::open(place).ok()?;
            let sections = DwarfSections::load_split(&file).ok()?;
            let mut dwarf = sections.borrow();
            // What the linker touched stands in the skeleton's file.
            dwarf.make_dwo(&units.dwarf);
            let found = ask_full(dwarf, units, skeleton, &ask)?;
            Some(Split::Full(found, Some(place.clone())))
        });
        found.unwrap_or_else(|| Split::Missing(clean_bytes(name)))
    }
}

/// Ask the unit of `dwarf` that has the skeleton's number.
fn ask_full<'s, 'a: 's, T>(
    dwarf: Dwarf<Slice<'s>>,
    units: &Units<'a, '_>,
    skeleton: &Unit<Slice<'s>>,
    ask: &impl for<'u> Fn(&Units<'u, '_>, &Unit<Slice<'u>>) -> T,
) -> Option<T> {
    let full = Units::parse(dwarf, units.code());
    let own = (0..full.len().min(MAX_UNITS)).find_map(|place| {
        let unit = full.open(place)?;
        (unit.dwo_id == skeleton.dwo_id).then_some(unit)
    });
    let mut unit = own?;
    unit.copy_relocated_attributes(skeleton);
    Some(ask(&full, &unit))
}

/// Name of the object file that a skeleton states; none for a full unit, which may have a number too.
fn object_name<'a>(units: &Units<'a, '_>, skeleton: &Unit<Slice<'a>>) -> Option<&'a [u8]> {
    let value = skeleton.dwo_name().ok().flatten()?;
    let name = units.dwarf.attr_string(skeleton, value).ok()?;
    Some(name.slice())
}
