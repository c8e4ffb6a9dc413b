//! One pass over a unit's entries: which functions, and which inlined into them, contain the wanted addresses.

use std::mem;
use std::ops::Range;

use gimli::{Abbreviation, AttributeValue, DwTag, EntriesRaw, Unit, UnitOffset, constants};

use super::cursor::Cursor;
use super::units::Units;
use super::{Budget, Slice};

/// Entries between two looks at the budget.
const ENTRIES_PER_CHECK: u32 = 1 << 14;
/// Ranges of all functions of one unit together for each entry byte: more is no compiler's.
const RANGES_PER_BYTE: usize = 4;

/// No node.
const NONE: u32 = u32::MAX;

/// A function, or an inlined one, that contains a wanted address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Its entry.
    pub(super) entry: UnitOffset,
    /// The node that this one is inlined into; none for a function of its own.
    pub(super) parent: Option<u32>,
    /// File of the call, as the line program numbers it.
    pub(super) call_file: Option<u64>,
    /// Line of the call.
    pub(super) call_line: u32,
    /// Column of the call.
    pub(super) call_column: u32,
    /// Bytes that the range covers.
    size: u64,
}

/// What the pass found.
pub(super) struct Found {
    pub(super) nodes: Vec<Node>,
    /// For each wanted address its innermost node.
    pub(super) innermost: Vec<Option<u32>>,
}

/// Find the functions that contain `wanted`, sorted addresses.
///
/// Entries below a function without a wanted address are jumped over. A compiler may put a function below another one
/// (nested functions of GNU C, methods of local classes), so what is still missing then is sought once more everywhere.
pub(super) fn find_functions<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    wanted: &[u64],
    budget: &Budget,
) -> Found {
    let mut walk = Walk::new(units, unit, wanted, budget);
    // A damaged entry ends the pass; what was found before it counts.
    let _ = walk.run(false);
    if walk.jumped && walk.innermost.contains(&NONE) {
        let _ = walk.run(true);
    }
    let innermost = walk
        .innermost
        .iter()
        .map(|&node| (node != NONE).then_some(node))
        .collect();
    Found {
        nodes: walk.nodes,
        innermost,
    }
}

/// The state of the pass.
struct Walk<'w, 'a, 'c> {
    units: &'w Units<'a, 'c>,
    unit: &'w Unit<Slice<'a>>,
    wanted: &'w [u64],
    budget: &'w Budget,
    nodes: Vec<Node>,
    innermost: Vec<u32>,
    /// Functions that are open at the place of the walk, with their depth.
    open: Vec<(isize, u32)>,
    /// Whether entries were jumped over.
    jumped: bool,
    ranges_left: usize,
    until_check: u32,
    /// Indices of wanted addresses in the ranges of the entry at hand.
    hits: Vec<Range<usize>>,
}

/// An entry at hand.
struct Entry<'e> {
    offset: UnitOffset,
    depth: isize,
    abbreviation: &'e Abbreviation,
}

/// Attributes of an entry that matter here.
#[derive(Default)]
struct Attributes<'a> {
    low_pc: Option<u64>,
    high_pc: Option<u64>,
    size: Option<u64>,
    ranges: Option<AttributeValue<Slice<'a>>>,
    sibling: Option<UnitOffset>,
    call_file: Option<u64>,
    call_line: u32,
    call_column: u32,
}

impl<'w, 'a, 'c> Walk<'w, 'a, 'c> {
    fn new(
        units: &'w Units<'a, 'c>,
        unit: &'w Unit<Slice<'a>>,
        wanted: &'w [u64],
        budget: &'w Budget,
    ) -> Self {
        Self {
            units,
            unit,
            wanted,
            budget,
            nodes: Vec::new(),
            innermost: vec![NONE; wanted.len()],
            open: Vec::new(),
            jumped: false,
            ranges_left: unit.header.unit_length().saturating_mul(RANGES_PER_BYTE),
            until_check: ENTRIES_PER_CHECK,
            hits: Vec::new(),
        }
    }

    /// Go over all entries; with `everywhere` also below those that cannot hold anything wanted as compilers write it.
    fn run(&mut self, everywhere: bool) -> gimli::Result<()> {
        let mut cursor = Cursor::new(self.unit)?;
        self.open.clear();
        while !cursor.entries.is_empty() {
            self.until_check -= 1;
            if self.until_check == 0 {
                self.until_check = ENTRIES_PER_CHECK;
                if self.budget.is_spent() {
                    return Ok(());
                }
            }
            let (offset, depth) = (cursor.entries.next_offset(), cursor.depth());
            let Some(abbreviation) = cursor.entries.read_abbreviation()? else {
                continue;
            };
            while self.open.last().is_some_and(|&(open, _)| open >= depth) {
                self.open.pop();
            }
            let entry = Entry {
                offset,
                depth,
                abbreviation,
            };
            match abbreviation.tag() {
                constants::DW_TAG_subprogram => self.function(&mut cursor, &entry, everywhere)?,
                constants::DW_TAG_inlined_subroutine if !self.open.is_empty() => {
                    self.inlined(&mut cursor, &entry)?
                }
                tag if !everywhere && is_closed(tag) && has_sibling(abbreviation) => {
                    let attributes = self.read(&mut cursor.entries, abbreviation)?;
                    self.jumped = true;
                    cursor.jump(attributes.sibling, depth)?;
                }
                _ => cursor.entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(())
    }

    fn function(
        &mut self,
        cursor: &mut Cursor<'_, 'a>,
        entry: &Entry<'_>,
        everywhere: bool,
    ) -> gimli::Result<()> {
        let attributes = self.read(&mut cursor.entries, entry.abbreviation)?;
        let size = self.collect_hits(&attributes);
        if self.hits.is_empty() {
            if !everywhere && entry.abbreviation.has_children() {
                self.jumped = true;
                cursor.jump(attributes.sibling, entry.depth)?;
            }
            return Ok(());
        }
        let entry_offset = entry.offset;
        let node = Node {
            entry: entry_offset,
            parent: None,
            call_file: None,
            call_line: 0,
            call_column: 0,
            size,
        };
        self.enter(node, entry.depth, |walk, held| walk.is_better(held, size));
        Ok(())
    }

    fn inlined(&mut self, cursor: &mut Cursor<'_, 'a>, entry: &Entry<'_>) -> gimli::Result<()> {
        let attributes = self.read(&mut cursor.entries, entry.abbreviation)?;
        let size = self.collect_hits(&attributes);
        if self.hits.is_empty() {
            // One without ranges says nothing of its children.
            if attributes.states_ranges() && entry.abbreviation.has_children() {
                cursor.jump(attributes.sibling, entry.depth)?;
            }
            return Ok(());
        }
        let parent = self.open.last().map_or(NONE, |&(_, node)| node);
        let Attributes {
            call_file,
            call_line,
            call_column,
            ..
        } = attributes;
        let node = Node {
            entry: entry.offset,
            parent: Some(parent),
            call_file,
            call_line,
            call_column,
            size,
        };
        // What is outside of the function around it, or claimed by a sibling before, stays as it is.
        self.enter(node, entry.depth, |_, held| held == parent);
        Ok(())
    }

    /// A function of its own counts where none was found, or where it is narrower: then it is nested in the other.
    fn is_better(&self, held: u32, size: u64) -> bool {
        let mut root = held;
        while let Some(node) = self.nodes.get(root as usize) {
            match node.parent {
                Some(parent) => root = parent,
                None => return size < node.size,
            }
        }
        true
    }

    /// Give the hits to a new node where `may` agrees; the node is kept if any are given.
    fn enter(&mut self, node: Node, depth: isize, may: impl Fn(&Self, u32) -> bool) {
        let Some(id) = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&id| id != NONE)
        else {
            return;
        };
        let hits = mem::take(&mut self.hits);
        let mut used = false;
        for index in hits.iter().cloned().flatten() {
            let held = self.innermost.get(index).copied().unwrap_or(NONE);
            if held != id
                && may(self, held)
                && let Some(slot) = self.innermost.get_mut(index)
            {
                *slot = id;
                used = true;
            }
        }
        if used {
            self.nodes.push(node);
            self.open.push((depth, id));
        }
        self.hits = hits;
    }

    /// Find the wanted addresses in the ranges of an entry; gives the number of bytes that the ranges cover.
    fn collect_hits(&mut self, attributes: &Attributes<'a>) -> u64 {
        self.hits.clear();
        let mut size = 0u64;
        if let Some(value) = &attributes.ranges {
            let Ok(Some(mut ranges)) = self.units.dwarf.attr_ranges(self.unit, *value) else {
                return 0;
            };
            while let Some(left) = self.ranges_left.checked_sub(1)
                && let Ok(Some(range)) = ranges.next()
            {
                self.ranges_left = left;
                size = size.saturating_add(self.collect(range.begin, range.end));
            }
        } else if let Some(low) = attributes.low_pc {
            let end = attributes
                .high_pc
                .or_else(|| low.checked_add(attributes.size?));
            size = end.map_or(0, |end| self.collect(low, end));
        }
        size
    }

    fn collect(&mut self, start: u64, end: u64) -> u64 {
        let first = self.wanted.partition_point(|&wanted| wanted < start);
        let tail = self.wanted.get(first..).unwrap_or_default();
        if tail.first().is_some_and(|&wanted| wanted < end) && self.units.is_code(start) {
            let behind = first + tail.partition_point(|&wanted| wanted < end);
            self.hits.push(first..behind);
        }
        end.saturating_sub(start)
    }

    fn read(
        &self,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
    ) -> gimli::Result<Attributes<'a>> {
        let mut found = Attributes::default();
        let line = |value: AttributeValue<Slice<'a>>| {
            value
                .udata_value()
                .and_then(|line| u32::try_from(line).ok())
        };
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            match attribute.name() {
                constants::DW_AT_low_pc => found.low_pc = self.address(attribute.value()),
                constants::DW_AT_high_pc => match attribute.value() {
                    AttributeValue::Udata(size) => found.size = Some(size),
                    value => found.high_pc = self.address(value),
                },
                constants::DW_AT_ranges => found.ranges = Some(attribute.value()),
                constants::DW_AT_sibling => {
                    if let AttributeValue::UnitRef(offset) = attribute.value() {
                        found.sibling = Some(offset);
                    }
                }
                constants::DW_AT_call_file => found.call_file = file_index(attribute.value()),
                constants::DW_AT_call_line => {
                    found.call_line = line(attribute.value()).unwrap_or(0)
                }
                constants::DW_AT_call_column => {
                    found.call_column = line(attribute.value()).unwrap_or(0)
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn address(&self, value: AttributeValue<Slice<'a>>) -> Option<u64> {
        self.units
            .dwarf
            .attr_address(self.unit, value)
            .ok()
            .flatten()
    }
}

impl Attributes<'_> {
    fn states_ranges(&self) -> bool {
        self.ranges.is_some() || self.low_pc.is_some()
    }
}

/// Whether compilers put no function with code below such an entry.
fn is_closed(tag: DwTag) -> bool {
    !matches!(
        tag,
        constants::DW_TAG_compile_unit
            | constants::DW_TAG_partial_unit
            | constants::DW_TAG_skeleton_unit
            | constants::DW_TAG_namespace
            | constants::DW_TAG_module
            | constants::DW_TAG_lexical_block
            | constants::DW_TAG_try_block
            | constants::DW_TAG_catch_block
            | constants::DW_TAG_inlined_subroutine
    )
}

fn has_sibling(abbreviation: &Abbreviation) -> bool {
    abbreviation.has_children()
        && abbreviation
            .attributes()
            .iter()
            .any(|spec| spec.name() == constants::DW_AT_sibling)
}

fn file_index(value: AttributeValue<Slice<'_>>) -> Option<u64> {
    match value {
        AttributeValue::FileIndex(index) => Some(index),
        value => value.udata_value(),
    }
}
