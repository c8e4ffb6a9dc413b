//! All units of a module, and which of them an address belongs to.

use std::iter;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use gimli::{
    Abbreviations, AttributeValue, DebugInfoOffset, Dwarf, Reader, Section, Unit, UnitHeader,
    UnitType, constants,
};
use rayon::prelude::*;

use super::Slice;
use super::limits::is_line_header_sane;
use super::sections::DwarfSections;
use super::tables::Tables;
use crate::resolve::file_offset::Svma;

/// Where ranges of units are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `.debug_aranges`: quick, but clang leaves it out and others leave it incomplete.
    Aranges,
    /// The root entries of the units.
    UnitRanges,
}

/// Units of a module that are looked at: large programs have some hundred thousand.
const MAX_UNITS: usize = 1 << 20;
/// Ranges that all units together may state, however much there is to read.
const MAX_RANGES: usize = 1 << 24;
/// The same, however little there is to read.
const FREE_RANGES: usize = 1 << 16;
/// Units whose roots are read before their pages are let go of.
const UNITS_PER_RELEASE: usize = 64;
/// Steps out of ranges that lie within each other.
const MAX_OVERLAP: usize = 64;

/// The units of a module.
pub(super) struct Units<'a, 'c> {
    pub(super) dwarf: Dwarf<Slice<'a>>,
    /// Their tables of abbreviations.
    tables: Tables,
    /// Whether a unit could not be parsed.
    unreadable: AtomicBool,
    /// Where the entries were read from, to let go of them.
    sections: Option<&'a DwarfSections<'a>>,
    code: &'c [Range<u64>],
    headers: Vec<UnitHeader<Slice<'a>>>,
    /// The units of the alternate file, which several modules share.
    alternate: Option<Box<Self>>,
    /// Units that others refer to, parsed when first needed.
    referred: Vec<OnceLock<Option<Box<Unit<Slice<'a>>>>>>,
}

/// A range of addresses that a unit claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    start: u64,
    end: u64,
    unit: u32,
}

impl<'a, 'c> Units<'a, 'c> {
    /// Go through the unit headers; what stands behind a damaged one is left out.
    pub(super) fn parse(dwarf: Dwarf<Slice<'a>>, code: &'c [Range<u64>]) -> Self {
        let mut headers = Vec::new();
        let mut rest = dwarf.units();
        while let Ok(Some(header)) = rest.next()
            && headers.len() < MAX_UNITS
        {
            headers.push(header);
        }
        let referred = headers.iter().map(|_| OnceLock::new()).collect();
        let dwarf_tables = dwarf.debug_abbrev.reader().len();
        Self {
            dwarf,
            tables: Tables::of(&headers, dwarf_tables),
            unreadable: AtomicBool::new(false),
            sections: None,
            code,
            headers,
            alternate: None,
            referred,
        }
    }

    /// As [`parse`](Self::parse), with the file that `dwz` moved shared entries and strings to.
    pub(super) fn parse_with(
        mut dwarf: Dwarf<Slice<'a>>,
        alternate: Option<&'a DwarfSections<'a>>,
        code: &'c [Range<u64>],
    ) -> Self {
        if let Some(alternate) = alternate {
            dwarf.set_sup(alternate.borrow());
        }
        Self {
            alternate: alternate.map(|other| Box::new(Self::parse(other.borrow(), code))),
            ..Self::parse(dwarf, code)
        }
    }

    /// The same, letting go of the pages of entries once they are read: the headers lie all over them.
    pub(super) fn releasing(self, sections: &'a DwarfSections<'a>) -> Self {
        let units = Self {
            sections: Some(sections),
            ..self
        };
        units.release(0, units.len().saturating_sub(1));
        units
    }

    /// Let go of the pages that hold the entries of the units from `first` to `last`.
    pub(super) fn release(&self, first: usize, last: usize) {
        if let (Some(sections), Some(entries)) = (self.sections, self.entries(first, last)) {
            sections.release(entries);
        }
    }

    /// The units of the alternate file.
    pub(super) fn alternate(&self) -> Option<&Self> {
        self.alternate.as_deref()
    }

    /// The executable ranges.
    pub(super) fn code(&self) -> &'c [Range<u64>] {
        self.code
    }

    /// Number of units.
    pub(super) fn len(&self) -> usize {
        self.headers.len()
    }

    /// Size of a unit's entries, in bytes.
    pub(super) fn size(&self, unit: usize) -> usize {
        self.headers.get(unit).map_or(0, UnitHeader::unit_length)
    }

    /// Bytes of the entries of the units from `first` to `last`.
    fn entries(&self, first: usize, last: usize) -> Option<&'a [u8]> {
        let start = self.headers.get(first)?.debug_info_offset()?.0;
        let header = self.headers.get(last)?;
        let end = header
            .debug_info_offset()?
            .0
            .checked_add(header.length_including_self())?;
        self.dwarf.debug_info.reader().slice().get(start..end)
    }

    /// Parse a unit for a visit.
    pub(super) fn open(&self, unit: usize) -> Option<Unit<Slice<'a>>> {
        let opened = self.try_open(unit);
        if opened.is_none() {
            self.unreadable.store(true, Relaxed);
        }
        opened
    }

    /// Whether a unit could not be parsed.
    pub(super) fn is_damaged(&self) -> bool {
        self.unreadable.load(Relaxed)
    }

    fn try_open(&self, unit: usize) -> Option<Unit<Slice<'a>>> {
        let header = *self.headers.get(unit)?;
        let offset = header.debug_abbrev_offset();
        let abbreviations = self.tables.get(&self.dwarf, offset)?;
        let program = line_program(&header, &abbreviations);
        program
            .is_none_or(|program| is_line_header_sane(&self.dwarf, program))
            .then_some(())?;
        Unit::new_with_abbreviations(&self.dwarf, header, abbreviations).ok()
    }

    /// The unit that holds `offset` and the place in it, for references across units.
    pub(super) fn referred(&self, offset: DebugInfoOffset) -> Option<(usize, &Unit<Slice<'a>>)> {
        let start = |header: &UnitHeader<Slice<'a>>| {
            header
                .debug_info_offset()
                .map_or(usize::MAX, |start| start.0)
        };
        let place = self
            .headers
            .partition_point(|header| start(header) <= offset.0)
            .checked_sub(1)?;
        let unit = self
            .referred
            .get(place)?
            .get_or_init(|| self.open(place).map(Box::new));
        Some((place, unit.as_deref()?))
    }

    /// Whether `address` can hold code; what starts elsewhere was thrown away by the linker (which leaves 0, 1, -1 or -2).
    pub(super) fn is_code(&self, address: u64) -> bool {
        let after = self.code.partition_point(|range| range.start <= address);
        after
            .checked_sub(1)
            .and_then(|place| self.code.get(place))
            .is_some_and(|range| address < range.end)
    }

    /// For each unit that claims one of the addresses `open` (indices into `wanted`): those it claims, in order.
    pub(super) fn place(
        &self,
        source: Source,
        open: &[u32],
        wanted: &[Svma],
        claims: usize,
    ) -> Vec<(usize, Vec<u32>)> {
        let mut ranges = match source {
            Source::Aranges => self.aranges(),
            Source::UnitRanges => self.unit_ranges(),
        };
        ranges.sort_unstable();
        ranges.dedup();
        let outer = nest(&ranges);
        let mut units: Vec<Vec<u32>> = vec![Vec::new(); self.len()];
        for &index in open {
            let Some(address) = wanted.get(index as usize) else {
                continue;
            };
            for unit in claimants(&ranges, &outer, address.0).take(claims) {
                if let Some(list) = units.get_mut(unit as usize)
                    && list.last() != Some(&index)
                {
                    list.push(index);
                }
            }
        }
        units
            .into_iter()
            .enumerate()
            .filter(|(_, list)| !list.is_empty())
            .collect()
    }

    /// Ranges that all units together may state: a range takes at least four bytes.
    fn max_ranges(&self) -> usize {
        let dwarf = &self.dwarf;
        let sections = [
            dwarf.debug_aranges.reader().len(),
            dwarf.ranges.debug_ranges().reader().len(),
            dwarf.ranges.debug_rnglists().reader().len(),
            dwarf.debug_info.reader().len(),
        ];
        let bytes = sections.into_iter().fold(0, usize::saturating_add);
        (bytes / 4).saturating_add(FREE_RANGES).min(MAX_RANGES)
    }

    fn aranges(&self) -> Vec<Claim> {
        let start = |header: &UnitHeader<Slice<'a>>| {
            header
                .debug_info_offset()
                .map_or(usize::MAX, |start| start.0)
        };
        let mut claims = Vec::new();
        let left = AtomicUsize::new(self.max_ranges());
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let Ok(place) = self
                .headers
                .binary_search_by_key(&header.debug_info_offset().0, start)
            else {
                continue;
            };
            let mut entries = header.entries();
            // An entry that overflows is skipped, its neighbours count; a fused iterator ends the loop.
            while let Some(entry) = entries.next().transpose() {
                if let Ok(entry) = entry {
                    self.claim(place, entry.range(), &left, &mut claims);
                }
            }
        }
        claims
    }

    fn unit_ranges(&self) -> Vec<Claim> {
        let left = AtomicUsize::new(self.max_ranges());
        let of_unit = |place: usize| {
            let mut claims = Vec::new();
            let header = self.headers.get(place)?;
            if matches!(
                header.type_(),
                UnitType::Type { .. } | UnitType::SplitType { .. } | UnitType::Partial
            ) {
                return None;
            }
            let unit = self.open(place)?;
            let mut ranges = self.dwarf.unit_ranges(&unit).ok()?;
            while let Ok(Some(range)) = ranges.next() {
                if !self.claim(place, range, &left, &mut claims) {
                    break;
                }
            }
            Some(claims)
        };
        let groups: Vec<Range<usize>> = (0..self.len())
            .step_by(UNITS_PER_RELEASE)
            .map(|first| first..self.len().min(first + UNITS_PER_RELEASE))
            .collect();
        let of_group = |group: Range<usize>| {
            let claims: Vec<Claim> = group.clone().filter_map(of_unit).flatten().collect();
            self.release(group.start, group.end.saturating_sub(1));
            claims
        };
        groups.into_par_iter().flat_map_iter(of_group).collect()
    }

    /// Keep a range that is of code; `false` once there are too many.
    fn claim(
        &self,
        place: usize,
        range: gimli::Range,
        left: &AtomicUsize,
        claims: &mut Vec<Claim>,
    ) -> bool {
        let take = |left: usize| left.checked_sub(1);
        if left.fetch_update(Relaxed, Relaxed, take).is_err() {
            return false;
        }
        if range.begin < range.end
            && self.is_code(range.begin)
            && let Ok(unit) = u32::try_from(place)
        {
            claims.push(Claim {
                start: range.begin,
                end: range.end,
                unit,
            });
        }
        true
    }
}

/// Where the root entry says that the unit's line program is.
fn line_program(header: &UnitHeader<Slice<'_>>, abbreviations: &Abbreviations) -> Option<usize> {
    let mut entries = header.entries_raw(abbreviations, None).ok()?;
    let root = entries.read_abbreviation().ok()??;
    for &spec in root.attributes() {
        let attribute = entries.read_attribute(spec).ok()?;
        if let (constants::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) =
            (attribute.name(), attribute.value())
        {
            return Some(offset.0);
        }
    }
    None
}

/// For each range, sorted by start, the nearest one before it that reaches over its start.
fn nest(ranges: &[Claim]) -> Vec<u32> {
    let mut open: Vec<(u64, u32)> = Vec::new();
    let link = |(index, range): (u32, &Claim)| {
        while open.last().is_some_and(|&(end, _)| end <= range.start) {
            open.pop();
        }
        let outer = open.last().map_or(u32::MAX, |&(_, outer)| outer);
        open.push((range.end, index));
        outer
    };
    (0u32..).zip(ranges).map(link).collect()
}

/// Units whose ranges contain `address`, the range with the nearest start first.
fn claimants<'r>(
    ranges: &'r [Claim],
    outer: &'r [u32],
    address: u64,
) -> impl Iterator<Item = u32> + 'r {
    let after = ranges.partition_point(|range| range.start <= address);
    let mut next = after.checked_sub(1);
    let chain = iter::from_fn(move || {
        let index = next?;
        next = outer
            .get(index)
            .filter(|&&outer| outer != u32::MAX)
            .map(|&outer| outer as usize);
        ranges.get(index)
    });
    chain
        .take(MAX_OVERLAP)
        .filter(move |range| address < range.end)
        .map(|range| range.unit)
}
