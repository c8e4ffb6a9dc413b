//! What to do at an entry, worked out once for each abbreviation: which attributes to read, how to step over the rest.

use std::ops::Range;

use foldhash::HashMap;
use gimli::{Abbreviation, Abbreviations, DwAt, DwForm, DwTag, Encoding, constants};

use super::bytes::{Bytes, Step};

/// Codes below this have a place in a table; compilers number them from 1.
const MAX_DENSE: usize = 1 << 12;

/// What an entry is to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function. It may have no code.
    Function,
    /// A function inlined into another.
    Inlined,
    /// What compilers put no code below, with a sibling to jump to.
    Closed,
    /// Anything else: what is below is gone through.
    Open,
}

/// An attribute that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute {
    pub(super) name: DwAt,
    pub(super) form: DwForm,
    /// The value of `DW_FORM_implicit_const`.
    pub(super) implicit: i64,
}

/// One step through an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Skip(Step),
    Read(Attribute),
}

/// What to do at the entries of one abbreviation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) has_children: bool,
    /// Steps over all attributes, in [`Plans::steps`].
    skip: Range<u32>,
    /// Steps that read, in [`Plans::actions`].
    read: Range<u32>,
    /// Bytes of all attributes, where that is one number.
    fixed: Option<u32>,
}

/// Plans of a unit's abbreviations, each made when its first entry is met.
#[derive(Debug)]
pub(super) struct Plans<'u> {
    abbreviations: &'u Abbreviations,
    encoding: Encoding,
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
    plans: Vec<Plan>,
    steps: Vec<Step>,
    actions: Vec<Action>,
}

/// No plan yet.
const NONE: u32 = u32::MAX;

impl<'u> Plans<'u> {
    pub(super) fn new(abbreviations: &'u Abbreviations, encoding: Encoding) -> Self {
        Self {
            abbreviations,
            encoding,
            dense: Vec::new(),
            sparse: HashMap::default(),
            plans: Vec::new(),
            steps: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// The number of the plan for `code`; nothing where there is no such abbreviation, or a form that is not known.
    #[inline(always)]
    pub(super) fn number(&mut self, code: u64) -> Option<u32> {
        let known = usize::try_from(code)
            .ok()
            .and_then(|code| self.dense.get(code));
        match known {
            Some(&number) if number != NONE => Some(number),
            _ => self.make(code),
        }
    }

    #[cold]
    fn make(&mut self, code: u64) -> Option<u32> {
        if let Some(&number) = self.sparse.get(&code) {
            return Some(number);
        }
        let plan = self.plan(self.abbreviations.get(code)?)?;
        let number = u32::try_from(self.plans.len()).ok()?;
        self.plans.push(plan);
        match usize::try_from(code) {
            Ok(code) if code < MAX_DENSE => {
                if self.dense.len() <= code {
                    self.dense.resize(code + 1, NONE);
                }
                *self.dense.get_mut(code)? = number;
            }
            _ => {
                self.sparse.insert(code, number);
            }
        }
        Some(number)
    }

    fn plan(&mut self, abbreviation: &Abbreviation) -> Option<Plan> {
        let kind = kind_of(abbreviation);
        let (first_step, first_action) = (self.steps.len(), self.actions.len());
        let mut fixed = Some(0u32);
        for spec in abbreviation.attributes() {
            let step = Step::of(spec.form(), self.encoding)?;
            fixed = match step {
                Step::Fixed(size) => fixed.and_then(|sum| sum.checked_add(size)),
                _ => None,
            };
            join(&mut self.steps, first_step, step);
            if is_read(kind, spec.name()) {
                self.actions.push(Action::Read(Attribute {
                    name: spec.name(),
                    form: spec.form(),
                    implicit: spec.implicit_const_value().unwrap_or(0),
                }));
            } else {
                join_action(&mut self.actions, first_action, step);
            }
        }
        let range = |from: usize, to: usize| -> Option<Range<u32>> {
            Some(u32::try_from(from).ok()?..u32::try_from(to).ok()?)
        };
        Some(Plan {
            kind,
            has_children: abbreviation.has_children(),
            skip: range(first_step, self.steps.len())?,
            read: range(first_action, self.actions.len())?,
            fixed,
        })
    }

    /// What kind of entry a plan is for, and whether it has children.
    #[inline(always)]
    pub(super) fn kind(&self, number: u32) -> Option<(Kind, bool)> {
        let plan = self.plans.get(number as usize)?;
        Some((plan.kind, plan.has_children))
    }

    /// Step over all attributes.
    #[inline(always)]
    pub(super) fn skip(&self, number: u32, bytes: &mut Bytes<'_>) -> Option<()> {
        let plan = self.plans.get(number as usize)?;
        if let Some(fixed) = plan.fixed {
            return bytes.skip(fixed as usize);
        }
        let steps = self
            .steps
            .get(plan.skip.start as usize..plan.skip.end as usize)?;
        for &step in steps {
            bytes.step(step, self.encoding)?;
        }
        Some(())
    }

    /// Give each attribute that is read to `each`, which must read its value, and step over the others.
    #[inline(always)]
    pub(super) fn read(
        &self,
        number: u32,
        bytes: &mut Bytes<'_>,
        mut each: impl FnMut(Attribute, &mut Bytes<'_>) -> Option<()>,
    ) -> Option<()> {
        let plan = self.plans.get(number as usize)?;
        let actions = self
            .actions
            .get(plan.read.start as usize..plan.read.end as usize)?;
        for &action in actions {
            match action {
                Action::Skip(step) => bytes.step(step, self.encoding)?,
                Action::Read(attribute) => each(attribute, bytes)?,
            }
        }
        Some(())
    }
}

/// Add a step; fixed ones in a row become one.
fn join(steps: &mut Vec<Step>, first: usize, step: Step) {
    let last = steps.get_mut(first..).and_then(<[_]>::last_mut);
    match (last, step) {
        (Some(Step::Fixed(sum)), Step::Fixed(size)) => *sum = sum.saturating_add(size),
        _ => steps.push(step),
    }
}

fn join_action(actions: &mut Vec<Action>, first: usize, step: Step) {
    let last = actions.get_mut(first..).and_then(<[_]>::last_mut);
    match (last, step) {
        (Some(Action::Skip(Step::Fixed(sum))), Step::Fixed(size)) => {
            *sum = sum.saturating_add(size)
        }
        _ => actions.push(Action::Skip(step)),
    }
}

fn kind_of(abbreviation: &Abbreviation) -> Kind {
    match abbreviation.tag() {
        constants::DW_TAG_subprogram => Kind::Function,
        constants::DW_TAG_inlined_subroutine => Kind::Inlined,
        tag if is_closed(tag) && has_sibling(abbreviation) => Kind::Closed,
        _ => Kind::Open,
    }
}

/// Whether the walk wants the attribute `name` of such an entry.
fn is_read(kind: Kind, name: DwAt) -> bool {
    match name {
        constants::DW_AT_sibling => kind != Kind::Open,
        constants::DW_AT_low_pc | constants::DW_AT_high_pc | constants::DW_AT_ranges => {
            matches!(kind, Kind::Function | Kind::Inlined)
        }
        constants::DW_AT_call_file | constants::DW_AT_call_line | constants::DW_AT_call_column => {
            kind == Kind::Inlined
        }
        _ => false,
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
