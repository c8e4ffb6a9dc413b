//! The source files of a unit's line program, as paths.

use foldhash::HashMap;
use gimli::{LineProgramHeader, Unit};

use super::program::RawPlace;
use super::text::text;
use super::units::Units;
use super::{Place, Slice};
use crate::text::clean_bytes;

/// Renders the files of a unit's line program, each once.
pub(super) struct Files<'u, 'a, 'c> {
    units: &'u Units<'a, 'c>,
    unit: &'u Unit<Slice<'a>>,
    known: HashMap<u64, Option<u32>>,
    pub(super) paths: Vec<String>,
}

impl<'u, 'a, 'c> Files<'u, 'a, 'c> {
    pub(super) fn new(units: &'u Units<'a, 'c>, unit: &'u Unit<Slice<'a>>) -> Self {
        Self {
            units,
            unit,
            known: HashMap::default(),
            paths: Vec::new(),
        }
    }

    /// Render the file of `place`.
    pub(super) fn place(&mut self, place: RawPlace) -> Place {
        let file = match self.known.get(&place.file) {
            Some(&known) => known,
            None => {
                let path = path_of(self.units, self.unit, place.file);
                let id = path.and_then(|path| {
                    self.paths.push(path);
                    u32::try_from(self.paths.len() - 1).ok()
                });
                self.known.insert(place.file, id);
                id
            }
        };
        let column = if place.line == 0 { 0 } else { place.column };
        Place {
            file,
            line: place.line,
            column,
        }
    }
}

/// The file with number `index` in the line program of `unit`.
pub(super) fn path_of<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    index: u64,
) -> Option<String> {
    let header: &LineProgramHeader<_> = unit.line_program.as_ref()?.header();
    // Up to DWARF 4 index 0 means no file; in DWARF 5 it is the unit's own.
    if index == 0 && header.version() <= 4 {
        return None;
    }
    let file = header.file(index)?;
    let text = |value| text(&units.dwarf, unit, value);
    let mut path = unit
        .comp_dir
        .as_ref()
        .map(|dir| dir.slice().to_vec())
        .unwrap_or_default();
    if file.directory_index() != 0
        && let Some(directory) = file.directory(header)
    {
        push(&mut path, text(directory)?);
    }
    push(&mut path, text(file.path_name())?);
    Some(clean_bytes(&path))
}

/// Append `part` to `path`, or let it take the place where it is absolute.
fn push(path: &mut Vec<u8>, part: &[u8]) {
    if part.first() == Some(&b'/') {
        path.clear();
    } else if path.last().is_some_and(|&last| last != b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(part);
}
