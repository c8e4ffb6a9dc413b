//! The line program of a unit: one pass that keeps the rows of wanted addresses only.

use foldhash::HashMap;
use gimli::{ColumnType, IncompleteLineProgram, LineProgramHeader, LineRow, Unit};

use super::units::Units;
use super::{Budget, Place, Slice};
use crate::text::clean_bytes;

/// Rows between two looks at the budget.
const ROWS_PER_CHECK: u32 = 1 << 14;

/// Give each of `wanted`, sorted addresses, its place in the source, files as indices of the line program.
///
/// A sequence whose start is not code was thrown away by the linker. Where several sequences hold an address, the
/// first one counts. Line 0 means that the compiler knows no line.
pub(super) fn find_rows<'a>(
    units: &Units<'a, '_>,
    program: IncompleteLineProgram<Slice<'a>>,
    wanted: &[u64],
    budget: &Budget,
) -> Vec<Option<RawPlace>> {
    let mut places = vec![None; wanted.len()];
    let mut rows = program.rows();
    let mut sequence: Option<Sequence> = None;
    let mut until_check = ROWS_PER_CHECK;
    while let Ok(Some((_, row))) = rows.next_row() {
        let address = row.address();
        let state = sequence.get_or_insert_with(|| Sequence {
            next: wanted.partition_point(|&wanted| wanted < address),
            last: None,
            alive: units.is_code(address),
        });
        if state.alive {
            state.fill_to(address, wanted, &mut places);
            state.last = Some(RawPlace::of(row));
        }
        if row.end_sequence() {
            sequence = None;
        }
        until_check -= 1;
        if until_check == 0 {
            until_check = ROWS_PER_CHECK;
            if budget.is_spent() {
                break;
            }
        }
    }
    places
}

/// A place with the file as the line program numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawPlace {
    pub(super) file: u64,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl RawPlace {
    fn of(row: &LineRow) -> Self {
        let line = row
            .line()
            .map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
        let column = match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
        };
        Self {
            file: row.file_index(),
            line,
            column,
        }
    }
}

/// A run of rows with rising addresses.
struct Sequence {
    /// The first wanted address that no row covers yet.
    next: usize,
    /// The row that holds from its address up to the next row's.
    last: Option<RawPlace>,
    /// Whether it starts in code.
    alive: bool,
}

impl Sequence {
    /// Let the last row cover the wanted addresses below `address`.
    fn fill_to(&mut self, address: u64, wanted: &[u64], places: &mut [Option<RawPlace>]) {
        while let Some(place) = places.get_mut(self.next)
            && wanted
                .get(self.next)
                .is_some_and(|&wanted| wanted < address)
        {
            if place.is_none() {
                *place = self.last;
            }
            self.next += 1;
        }
    }
}

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
                let path = self.render(place.file);
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

    fn render(&self, index: u64) -> Option<String> {
        let header: &LineProgramHeader<_> = self.unit.line_program.as_ref()?.header();
        // Up to DWARF 4 index 0 means no file; in DWARF 5 it is the unit's own.
        if index == 0 && header.version() <= 4 {
            return None;
        }
        let file = header.file(index)?;
        let text = |value| {
            self.units
                .dwarf
                .attr_string(self.unit, value)
                .ok()
                .map(|text| text.slice())
        };
        let mut path = self
            .unit
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
