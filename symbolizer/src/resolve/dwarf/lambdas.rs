//! What a lambda is called, and where it is declared, where its compiler tells neither.
//!
//! GCC says of a lambda that it inlines no more than `operator()`. Its type, the entry around, says where it is declared, and
//! the functions around that say whose it is; an entry does not know what is around it, so they are gone to from the start
//! of the unit.

use std::sync::Arc;

use foldhash::HashMap;
use gimli::{DebugInfoOffset, Unit, UnitOffset, constants};

use super::super::demangle::demangle;
use super::cursor::{Cursor, EntryHead, Value};
use super::names::{NameFinder, Names};
use super::plan::Kind;
use super::{Budget, Place, Slice};
use crate::text::clean_bytes;

/// What compilers call it.
const OPERATOR: &[u8] = b"operator()";
/// Lambdas in each other that are told.
const MAX_NESTED: usize = 8;
/// Bytes of what stands before a lambda's own name; where it would be longer it is left out.
const MAX_SCOPE: usize = 1 << 12;
/// Entries between two looks at the budget.
const ENTRIES_PER_CHECK: u32 = 1 << 14;

/// What was found of a lambda.
#[derive(Clone, Debug, Default)]
pub(super) struct Lambda {
    /// What stands before its name: the functions around it; none where nothing is around it.
    pub(super) scope: Option<Arc<[u8]>>,
    /// File, an index into [`NameFinder::paths`], and line.
    pub(super) declared: Place,
}

/// The entry of what may be a lambda of which something is missing: its name, or with `declarations` its place.
pub(super) fn unnamed(names: &Names<'_>, declarations: bool) -> Option<DebugInfoOffset> {
    let is_placed = !declarations || names.declared.line > 0;
    let is_told = names.linkage_name.is_some() && is_placed;
    let name = names.name.filter(|name| name.starts_with(OPERATOR));
    names.last.filter(|_| name.is_some() && !is_told)
}

/// Find what is around each entry of `wanted`; those that are no lambda's are left out.
pub(super) fn find<'a>(
    names: &mut NameFinder<'_, 'a, '_>,
    mut wanted: Vec<DebugInfoOffset>,
    budget: &Budget,
) -> HashMap<DebugInfoOffset, Lambda> {
    wanted.sort_unstable();
    wanted.dedup();
    let mut found = HashMap::default();
    let mut rest = &wanted[..];
    while let Some(&first) = rest.first() {
        let Some((unit, _)) = names.unit_of(first) else {
            rest = rest.get(1..).unwrap_or_default();
            continue;
        };
        let offset = |at: &DebugInfoOffset| at.to_unit_offset(&unit.header);
        let offsets: Vec<UnitOffset> = rest.iter().map_while(offset).collect();
        let (here, behind) = rest.split_at(offsets.len());
        rest = behind;
        // Lambdas of one function share its name.
        let mut scopes: HashMap<UnitOffset, Option<Arc<[u8]>>> = HashMap::default();
        for (&at, around) in here.iter().zip(around(unit, &offsets, budget)) {
            let Some((&kind, functions)) = around.split_last() else {
                continue;
            };
            // A type with a name is a programmer's own.
            let kind = names.entry(unit, kind);
            if kind.name.is_some() {
                continue;
            }
            let scope = functions.last().and_then(|&innermost| {
                let made = || scope(names, unit, functions);
                scopes.entry(innermost).or_insert_with(made).clone()
            });
            let declared = kind.declared;
            found.insert(at, Lambda { scope, declared });
        }
    }
    found
}

/// How what stands in `functions`, outermost first, is named after them.
fn scope<'u, 'a>(
    names: &mut NameFinder<'u, 'a, '_>,
    unit: &'u Unit<Slice<'a>>,
    functions: &[UnitOffset],
) -> Option<Arc<[u8]>> {
    let mut whole = String::new();
    for &function in functions {
        let names = names.chain(unit, function);
        let is_lambda = names.name.is_some_and(|name| name.starts_with(OPERATOR));
        match names.linkage_name {
            Some(linked) => whole = demangle(linked),
            None if is_lambda && !whole.is_empty() => whole += "::{lambda}::operator()",
            None => whole = clean_bytes(names.name?),
        }
    }
    whole += "::{lambda}::";
    (whole.len() <= MAX_SCOPE).then(|| whole.into_bytes().into())
}

/// For each of the sorted entries `wanted` the functions around it, outermost first, and the entry directly around it;
/// nothing where it is no entry.
fn around(unit: &Unit<Slice<'_>>, wanted: &[UnitOffset], budget: &Budget) -> Vec<Vec<UnitOffset>> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut open = Open::default();
    let mut until_check = ENTRIES_PER_CHECK;
    let mut cursor = Cursor::new(unit).ok();
    while let Some(cursor) = cursor.as_mut().filter(|cursor| !cursor.is_empty()) {
        until_check -= 1;
        if until_check == 0 {
            until_check = ENTRIES_PER_CHECK;
            if budget.is_spent() {
                break;
            }
        }
        let Some(head) = cursor.next() else { break };
        let Some(head) = head else { continue };
        open.close(head.depth);
        while let Some(next) = wanted.get(found.len()).filter(|next| **next <= head.offset) {
            let is_it = *next == head.offset;
            found.push(if is_it { open.around() } else { Vec::new() });
        }
        let Some(next) = wanted.get(found.len()) else {
            break;
        };
        if open.enter(cursor, &head, *next).is_none() {
            break;
        }
    }
    found.resize(wanted.len(), Vec::new());
    found
}

/// Entries whose children are gone through, by depth.
#[derive(Default)]
struct Open {
    functions: Vec<(isize, UnitOffset)>,
    others: Vec<(isize, UnitOffset)>,
}

impl Open {
    /// An entry at `depth` comes next: what is as deep has ended.
    fn close(&mut self, depth: isize) {
        for open in [&mut self.functions, &mut self.others] {
            while open.pop_if(|(held, _)| *held >= depth).is_some() {}
        }
    }

    /// The innermost functions, and the entry directly around; nothing where that is a function itself.
    fn around(&self) -> Vec<UnitOffset> {
        let innermost = self.functions.last().map_or(-1, |(depth, _)| *depth);
        let kind = self.others.last().filter(|(depth, _)| *depth > innermost);
        let Some((_, kind)) = kind else {
            return Vec::new();
        };
        let first = self.functions.len().saturating_sub(MAX_NESTED);
        let functions = self.functions.get(first..).unwrap_or_default();
        functions.iter().map(|(_, at)| *at).chain([*kind]).collect()
    }

    /// Go on to the children of the entry at hand, or to what is behind them where `next` is not among them.
    fn enter(
        &mut self,
        cursor: &mut Cursor<'_, '_>,
        head: &EntryHead,
        next: UnitOffset,
    ) -> Option<()> {
        let (kind, has_children) = cursor.plans.kind(head.plan)?;
        let mut sibling = None;
        cursor.read(head, has_children, |attribute, value| {
            if let Value::Reference(offset) = value
                && attribute.name == constants::DW_AT_sibling
            {
                sibling = Some(offset);
            }
        })?;
        if !has_children {
            return Some(());
        }
        let is_before = |sibling: u64| usize::try_from(sibling).is_ok_and(|at| at <= next.0);
        if sibling.is_some_and(is_before) {
            return cursor.jump(sibling, head.depth);
        }
        let open = match kind {
            Kind::Function => &mut self.functions,
            _ => &mut self.others,
        };
        open.push((head.depth, head.offset));
        Some(())
    }
}
