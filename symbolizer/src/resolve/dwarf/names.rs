//! Names of functions, through chains of `DW_AT_abstract_origin` and `DW_AT_specification` and across units.

use std::ptr;

use foldhash::HashMap;
use gimli::{AttributeValue, DebugInfoOffset, Unit, UnitOffset, constants};

use super::Slice;
use super::text::text;
use super::units::Units;

/// Entries of one chain: a longer one is a loop.
const MAX_CHAIN: usize = 16;

/// The two names of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names<'a> {
    pub(super) linkage_name: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
}

/// Looks names up for the entries of one unit, each entry once.
pub(super) struct NameFinder<'u, 'a, 'c> {
    units: &'u Units<'a, 'c>,
    unit: &'u Unit<Slice<'a>>,
    found: HashMap<usize, Names<'a>>,
}

impl<'u, 'a, 'c> NameFinder<'u, 'a, 'c> {
    pub(super) fn new(units: &'u Units<'a, 'c>, unit: &'u Unit<Slice<'a>>) -> Self {
        Self {
            units,
            unit,
            found: HashMap::default(),
        }
    }

    /// Names of the function at `offset`.
    ///
    /// The linkage name counts wherever on the chain it is first met; a concrete entry may hold the short name only.
    pub(super) fn names(&mut self, offset: UnitOffset) -> Names<'a> {
        if let Some(&found) = self.found.get(&offset.0) {
            return found;
        }
        let mut names = Names::default();
        let (mut units, mut unit, mut at) = (self.units, self.unit, offset);
        for hop in 0..MAX_CHAIN {
            let Some(next) = read_names(units, unit, at, &mut names) else {
                break;
            };
            if names.linkage_name.is_some() {
                break;
            }
            match next {
                Reference::Here(offset) => at = offset,
                Reference::Elsewhere(offset) | Reference::Alternate(offset) => {
                    if let Reference::Alternate(_) = next {
                        let Some(alternate) = units.alternate() else {
                            break;
                        };
                        units = alternate;
                    }
                    let Some((_, other)) = units.referred(offset) else {
                        break;
                    };
                    let Some(offset) = offset.to_unit_offset(&other.header) else {
                        break;
                    };
                    (unit, at) = (other, offset);
                }
            }
            // Inlined copies of one function share their origin: the chain behind it is walked once.
            if hop == 0
                && ptr::eq(unit, self.unit)
                && let Some(known) = self.found.get(&at.0)
            {
                names = Names {
                    linkage_name: known.linkage_name,
                    name: names.name.or(known.name),
                };
                break;
            }
        }
        self.found.insert(offset.0, names);
        names
    }
}

/// Where a chain goes on.
enum Reference {
    Here(UnitOffset),
    Elsewhere(DebugInfoOffset),
    /// In the file that several modules share.
    Alternate(DebugInfoOffset),
}

/// Read what the entry at `offset` itself says; gives the entry that it refers to.
fn read_names<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    offset: UnitOffset,
    names: &mut Names<'a>,
) -> Option<Reference> {
    let mut entries = unit.entries_raw(Some(offset)).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    let mut next = None;
    let text = |value| text(&units.dwarf, unit, value);
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec).ok()?;
        match attribute.name() {
            constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => {
                names.linkage_name = names.linkage_name.or_else(|| text(attribute.value()));
            }
            constants::DW_AT_name => names.name = names.name.or_else(|| text(attribute.value())),
            constants::DW_AT_abstract_origin | constants::DW_AT_specification => match attribute
                .value()
            {
                AttributeValue::UnitRef(offset) => next = Some(Reference::Here(offset)),
                AttributeValue::DebugInfoRef(offset) => next = Some(Reference::Elsewhere(offset)),
                AttributeValue::DebugInfoRefSup(offset) => {
                    next = Some(Reference::Alternate(offset))
                }
                _ => {}
            },
            _ => {}
        }
    }
    next
}
