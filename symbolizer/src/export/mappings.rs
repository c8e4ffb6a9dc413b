//! Made-up memory: each part of a module that holds code at a range of addresses of its own.

use crate::symbolized::{CodePlace, CodeRange, ModuleSymbols, SymbolizedProfile};

/// Where the first mapping starts.
const FIRST: u64 = 0x10_0000;
/// Between mappings, so that none ends where another starts.
const GAP: u64 = 0x10_0000;
/// What mappings are rounded to, in bytes.
const PAGE: u64 = 0x1000;

/// A part of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Index of the module.
    pub(super) module: u32,
    /// First address.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) size: u64,
    /// Offset in the file of the first address.
    pub(super) offset: u64,
    /// Path of the module, or what stands for it.
    pub(super) path: String,
}

/// All mappings, by module and offset; their IDs count from 1.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    list: Vec<Mapping>,
    /// For each module the range of its mappings.
    of_module: Vec<(usize, usize)>,
}

impl Mappings {
    /// Mappings of every module that has a frame. An executable comes first, as readers take the first for the program.
    pub(super) fn of(profile: &SymbolizedProfile) -> Self {
        let mut used = vec![Vec::new(); profile.modules.len()];
        for place in profile.places() {
            let of_module = place
                .module
                .and_then(|module| used.get_mut(module as usize));
            if let Some(offsets) = of_module {
                offsets.push(place.offset);
            }
        }
        let mut order: Vec<usize> = (0..used.len()).collect();
        order.sort_by_key(|&module| !profile.modules.get(module).is_some_and(is_program));
        let mut mappings = Self {
            list: Vec::new(),
            of_module: vec![(0, 0); used.len()],
        };
        let mut next = FIRST;
        for index in order {
            let (Some(module), Some(offsets)) = (profile.modules.get(index), used.get(index))
            else {
                continue;
            };
            let first = mappings.list.len();
            for (offset, size) in parts(&module.code, offsets) {
                mappings.list.push(Mapping {
                    module: u32::try_from(index).unwrap_or(u32::MAX),
                    start: next,
                    size,
                    offset,
                    path: module.path.clone(),
                });
                next = next.saturating_add(size).saturating_add(GAP) & !(PAGE - 1);
            }
            if let Some(range) = mappings.of_module.get_mut(index) {
                *range = (first, mappings.list.len());
            }
        }
        mappings
    }

    /// In the order of their IDs.
    pub(super) fn list(&self) -> &[Mapping] {
        &self.list
    }

    /// ID of the mapping and address of a place.
    pub(super) fn find(&self, place: &CodePlace) -> Option<(u64, u64)> {
        let &(first, end) = self.of_module.get(place.module? as usize)?;
        let of_module = self.list.get(first..end)?;
        of_module
            .iter()
            .zip(first as u64 + 1..)
            .find_map(|(mapping, id)| {
                let within = place.offset.checked_sub(mapping.offset)?;
                (within < mapping.size).then(|| (id, mapping.start.saturating_add(within)))
            })
    }
}

fn is_program(module: &ModuleSymbols) -> bool {
    !module.code.is_empty() && !module.path.contains(".so") && !module.path.starts_with('[')
}

/// Parts of a module: those that hold code and are used, and one for offsets outside of all of them.
fn parts(code: &[CodeRange], offsets: &[u64]) -> Vec<(u64, u64)> {
    let pages = |from: u64, end: u64| {
        let from = from & !(PAGE - 1);
        let end = end.checked_next_multiple_of(PAGE).unwrap_or(end);
        (from, end.saturating_sub(from))
    };
    let within = |&(from, size): &(u64, u64), offset: u64| offset >= from && offset - from < size;
    let code = code
        .iter()
        .map(|code| pages(code.offset, code.offset.saturating_add(code.size)));
    let mut parts: Vec<_> = code
        .filter(|part| offsets.iter().any(|&offset| within(part, offset)))
        .collect();
    let outside = offsets
        .iter()
        .filter(|&&offset| !parts.iter().any(|part| within(part, offset)));
    if let (Some(&least), Some(&greatest)) = (outside.clone().min(), outside.max()) {
        parts.push(pages(least, greatest.saturating_add(1)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that parts are whole pages, that unused ones are left out, and that what lies outside gets one of its own.
    #[test]
    fn parts_of_a_module() {
        let code = [(0x1234, 0x100), (0x9000, 0x1000), (0xf000, 0x10)];
        let code = code.map(|(offset, size)| CodeRange {
            offset,
            size,
            vaddr: 0,
        });
        assert_eq!(
            parts(&code, &[0x1240, 0x9fff, 0x4_0001]),
            [(0x1000, 0x1000), (0x9000, 0x1000), (0x4_0000, 0x1000)]
        );
        assert_eq!(parts(&[], &[]), []);
        assert_eq!(parts(&[], &[u64::MAX]).len(), 1);
    }
}
