//! Names of functions and where they are declared, through chains of `DW_AT_abstract_origin` and `DW_AT_specification` and
//! across units.

use std::ptr;

use foldhash::HashMap;
use gimli::{AttributeValue, DebugInfoOffset, Unit, UnitOffset, constants};

use super::files::path_of;
use super::text::text;
use super::units::Units;
use super::{Place, Slice};

/// Entries of one chain: a longer one is a loop.
const MAX_CHAIN: usize = 16;

/// What a function is called, and where it is declared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names<'a> {
    pub(super) linkage_name: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    /// File, an index into [`NameFinder::paths`], and line; 0 where it is not told.
    pub(super) declared: Place,
    /// The last entry of the chain that was read, unless it is in the file that several modules share.
    pub(super) last: Option<DebugInfoOffset>,
}

impl<'a> Names<'a> {
    /// What this entry says, else `behind`, to which it refers.
    fn or(self, behind: Self) -> Self {
        Self {
            linkage_name: self.linkage_name.or(behind.linkage_name),
            name: self.name.or(behind.name),
            declared: Place {
                file: self.declared.file.or(behind.declared.file),
                line: if self.declared.line == 0 {
                    behind.declared.line
                } else {
                    self.declared.line
                },
                column: 0,
            },
            last: behind.last,
        }
    }

    /// Whether nothing behind could add to it.
    fn is_whole(&self, declarations: bool) -> bool {
        let Place { file, line, .. } = self.declared;
        self.linkage_name.is_some() && (!declarations || file.is_some() && line > 0)
    }
}

/// Looks names up for the entries of one unit, each entry once.
pub(super) struct NameFinder<'u, 'a, 'c> {
    units: &'u Units<'a, 'c>,
    unit: &'u Unit<Slice<'a>>,
    /// Whether it is wanted where functions are declared.
    declarations: bool,
    found: HashMap<usize, Names<'a>>,
    /// Files in which functions are declared, by unit and number in its line program.
    files: HashMap<(usize, u64), Option<u32>>,
    pub(super) paths: Vec<String>,
}

impl<'u, 'a, 'c> NameFinder<'u, 'a, 'c> {
    pub(super) fn new(
        units: &'u Units<'a, 'c>,
        unit: &'u Unit<Slice<'a>>,
        declarations: bool,
    ) -> Self {
        Self {
            units,
            unit,
            declarations,
            found: HashMap::default(),
            files: HashMap::default(),
            paths: Vec::new(),
        }
    }

    /// Names of the function at `offset`.
    ///
    /// What is nearest on the chain counts: a definition states its own line, and a concrete entry may hold the short
    /// name only.
    pub(super) fn names(&mut self, offset: UnitOffset) -> Names<'a> {
        if let Some(&found) = self.found.get(&offset.0) {
            return found;
        }
        let names = self.chain(self.unit, offset);
        self.found.insert(offset.0, names);
        names
    }

    /// The same of an entry of any unit.
    pub(super) fn chain(&mut self, unit: &'u Unit<Slice<'a>>, offset: UnitOffset) -> Names<'a> {
        let mut names = Names::default();
        let (mut units, mut unit, mut at) = (self.units, unit, offset);
        for hop in 0..MAX_CHAIN {
            let Some((entry, next)) = self.one(units, unit, at) else {
                break;
            };
            names = names.or(entry);
            let Some(next) = next.filter(|_| !names.is_whole(self.declarations)) else {
                break;
            };
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
                && let Some(&known) = self.found.get(&at.0)
            {
                names = names.or(known);
                break;
            }
        }
        names
    }

    /// What one entry of a unit says by itself, and to which it refers.
    fn one(
        &mut self,
        units: &'u Units<'a, 'c>,
        unit: &'u Unit<Slice<'a>>,
        at: UnitOffset,
    ) -> Option<(Names<'a>, Option<Reference>)> {
        let entry = read_entry(units, unit, at)?;
        let file = entry.file.filter(|_| self.declarations);
        let file = file.and_then(|file| self.file(units, unit, file));
        let names = Names {
            declared: Place {
                file,
                ..entry.names.declared
            },
            last: at
                .to_debug_info_offset(&unit.header)
                .filter(|_| ptr::eq(units, self.units)),
            ..entry.names
        };
        Some((names, entry.next))
    }

    /// What an entry says by itself.
    pub(super) fn entry(&mut self, unit: &'u Unit<Slice<'a>>, at: UnitOffset) -> Names<'a> {
        let found = self.one(self.units, unit, at);
        found.map(|(names, _)| names).unwrap_or_default()
    }

    /// The unit that holds an entry.
    pub(super) fn unit_of(&self, at: DebugInfoOffset) -> Option<(&'u Unit<Slice<'a>>, UnitOffset)> {
        let here = at.to_unit_offset(&self.unit.header);
        if let Some(offset) = here {
            return Some((self.unit, offset));
        }
        let (_, unit) = self.units.referred(at)?;
        Some((unit, at.to_unit_offset(&unit.header)?))
    }

    /// The file with a number in the line program of `unit`.
    fn file(&mut self, units: &Units<'a, 'c>, unit: &Unit<Slice<'a>>, file: u64) -> Option<u32> {
        let paths = &mut self.paths;
        let known = self.files.entry((ptr::from_ref(unit).addr(), file));
        *known.or_insert_with(|| {
            paths.push(path_of(units, unit, file)?);
            u32::try_from(paths.len() - 1).ok()
        })
    }
}

/// What one entry says by itself.
#[derive(Default)]
struct Entry<'a> {
    names: Names<'a>,
    /// The file in which it is declared, as the line program numbers it.
    file: Option<u64>,
    next: Option<Reference>,
}

/// Where a chain goes on.
#[derive(Clone, Copy)]
enum Reference {
    Here(UnitOffset),
    Elsewhere(DebugInfoOffset),
    /// In the file that several modules share.
    Alternate(DebugInfoOffset),
}

/// Read what the entry at `offset` says, and to which it refers.
fn read_entry<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    offset: UnitOffset,
) -> Option<Entry<'a>> {
    let mut entries = unit.entries_raw(Some(offset)).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    let mut found = Entry::default();
    let names = &mut found.names;
    let text = |value| text(&units.dwarf, unit, value);
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec).ok()?;
        let number = || attribute.udata_value();
        match attribute.name() {
            constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => {
                names.linkage_name = names.linkage_name.or_else(|| text(attribute.value()));
            }
            constants::DW_AT_name => names.name = names.name.or_else(|| text(attribute.value())),
            constants::DW_AT_decl_file => found.file = number(),
            constants::DW_AT_decl_line => {
                let line = number().and_then(|line| u32::try_from(line).ok());
                names.declared.line = line.unwrap_or(0);
            }
            constants::DW_AT_abstract_origin | constants::DW_AT_specification => {
                found.next = reference(attribute.value()).or(found.next);
            }
            _ => {}
        }
    }
    Some(found)
}

fn reference(value: AttributeValue<Slice<'_>>) -> Option<Reference> {
    match value {
        AttributeValue::UnitRef(offset) => Some(Reference::Here(offset)),
        AttributeValue::DebugInfoRef(offset) => Some(Reference::Elsewhere(offset)),
        AttributeValue::DebugInfoRefSup(offset) => Some(Reference::Alternate(offset)),
        _ => None,
    }
}
