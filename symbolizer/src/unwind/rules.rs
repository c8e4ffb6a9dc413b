//! Rules by module and offset, each worked out once. One of these belongs to one thread.

use std::sync::Arc;

use foldhash::HashMap;
use gimli::UnwindContext;
use rawstack_format::id::FileOffset;

use super::machine::Machine;
use super::module::{ModuleId, UnwindModule};
use super::rule::Rule;
use crate::resolve::file_offset::AddressKind;

/// Addresses that are remembered at most.
const MAX_ADDRESSES: usize = 1 << 20;
/// Bytes that rules of the rarer kind may take.
const MAX_WEIGHT: usize = 16 << 20;
/// Places of the table that is looked into first, a power of two.
const RECENT: usize = 1 << 12;

/// A frame's module, offset and kind of address.
type Key = (ModuleId, FileOffset, bool);

/// Rules that were worked out.
#[derive(Debug)]
pub(crate) struct Rules {
    context: UnwindContext<usize>,
    recent: Vec<Option<(Key, u32)>>,
    by_address: HashMap<Key, u32>,
    numbers: HashMap<Rule, u32>,
    rules: Vec<Rule>,
    weight: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            context: UnwindContext::new(),
            recent: vec![None; RECENT],
            by_address: HashMap::default(),
            numbers: HashMap::default(),
            rules: Vec::new(),
            weight: 0,
        }
    }
}

/// No module, or one that is not known.
const NO_RULE: Rule = Rule::FramePointer;

impl Rules {
    /// The rule for a frame of `modules`.
    #[inline]
    pub(super) fn rule(
        &mut self,
        modules: &[Arc<UnwindModule>],
        (module, offset, kind): (ModuleId, FileOffset, AddressKind),
        machine: Machine,
    ) -> &Rule {
        let key = (module, offset, kind == AddressKind::Exact);
        let place = place(key);
        let number = match self.recent.get(place) {
            Some(Some((held, number))) if *held == key => *number,
            _ => self.look_up(modules, key, kind, machine),
        };
        self.rules.get(number as usize).unwrap_or(&NO_RULE)
    }

    fn look_up(
        &mut self,
        modules: &[Arc<UnwindModule>],
        key: Key,
        kind: AddressKind,
        machine: Machine,
    ) -> u32 {
        let number = match self.by_address.get(&key) {
            Some(&number) => number,
            None => self.work_out(modules, key, kind, machine),
        };
        if let Some(recent) = self.recent.get_mut(place(key)) {
            *recent = Some((key, number));
        }
        number
    }

    fn work_out(
        &mut self,
        modules: &[Arc<UnwindModule>],
        key: Key,
        kind: AddressKind,
        machine: Machine,
    ) -> u32 {
        let (id, offset, _) = key;
        let module = usize::try_from(id.0).ok().and_then(|id| modules.get(id));
        let context = &mut self.context;
        let rule = module.map_or(NO_RULE, |module| {
            module.rule(offset, kind, machine, context)
        });
        if self.by_address.len() >= MAX_ADDRESSES || self.weight > MAX_WEIGHT {
            *self = Self::default();
        }
        let next = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        let number = match self.numbers.get(&rule) {
            Some(&number) => number,
            None => {
                // It is held twice: as a key, and by its number.
                self.weight += 2 * rule.weight();
                self.numbers.insert(rule.clone(), next);
                self.rules.push(rule);
                next
            }
        };
        self.by_address.insert(key, number);
        number
    }
}

/// Where a key is looked for first.
#[inline]
fn place((module, offset, exact): Key) -> usize {
    let mixed = (offset.0 << 1 | u64::from(exact)) ^ u64::from(module.0) << 48;
    let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    usize::try_from(mixed).unwrap_or(0)
}
