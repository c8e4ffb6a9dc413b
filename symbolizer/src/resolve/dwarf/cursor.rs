//! A place in the entries of a unit that can jump over children, and the values of attributes that are read there.

use gimli::{
    AttributeValue, DebugAddrIndex, DebugRngListsIndex, Encoding, RawRangeListsOffset, Reader,
    Unit, UnitOffset, constants,
};

use super::Slice;
use super::bytes::{Bytes, Step};
use super::plan::{Attribute, Plans};

/// A place in the entries of a unit.
#[derive(Debug)]
pub(super) struct Cursor<'u, 'a> {
    bytes: Bytes<'a>,
    /// Offset in the unit at which the entries start.
    base: usize,
    depth: isize,
    pub(super) plans: Plans<'u>,
    pub(super) encoding: Encoding,
}

/// An entry at hand: its code is read, its attributes are not.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryHead {
    /// Where it starts, in the unit.
    pub(super) offset: UnitOffset,
    /// How deep it lies.
    pub(super) depth: isize,
    /// Number of its plan.
    pub(super) plan: u32,
}

/// A value of an attribute, as far as its form tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Address(u64),
    AddressIndex(u64),
    Number(u64),
    /// An offset in another section; DWARF 2 and 3 write it as a plain number.
    Offset(u64),
    ListIndex(u64),
    Reference(u64),
    Other,
}

impl<'u, 'a> Cursor<'u, 'a> {
    /// The start of the unit's entries.
    pub(super) fn new(unit: &'u Unit<Slice<'a>>) -> gimli::Result<Self> {
        let root = unit.header.root_offset();
        let entries = unit.header.range_from(root..)?;
        Ok(Self {
            bytes: Bytes::new(entries.slice(), entries.endian()),
            base: root.0,
            depth: 0,
            plans: Plans::new(&unit.abbreviations, unit.encoding()),
            encoding: unit.encoding(),
        })
    }

    /// Whether all entries are read.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Depth of the next entry.
    pub(super) fn depth(&self) -> isize {
        self.depth
    }

    /// Read the code of the next entry; `Some(None)` ends a list of children, `None` all entries.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Option<EntryHead>> {
        let offset = UnitOffset(self.base + self.bytes.position());
        let code = self.bytes.uleb()?;
        if code == 0 {
            self.depth -= 1;
            return Some(None);
        }
        Some(Some(EntryHead {
            offset,
            depth: self.depth,
            plan: self.plans.number(code)?,
        }))
    }

    /// Step over the attributes of the entry at hand; its children, where it has any, are next.
    #[inline(always)]
    pub(super) fn skip(&mut self, head: &EntryHead, has_children: bool) -> Option<()> {
        self.depth += isize::from(has_children);
        self.plans.skip(head.plan, &mut self.bytes)
    }

    /// Give `each` the values of those attributes of the entry at hand that are read.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        head: &EntryHead,
        has_children: bool,
        mut each: impl FnMut(&Attribute, Value),
    ) -> Option<()> {
        self.depth += isize::from(has_children);
        let encoding = self.encoding;
        self.plans
            .read(head.plan, &mut self.bytes, |attribute, bytes| {
                each(&attribute, value(&attribute, bytes, encoding)?);
                Some(())
            })
    }

    /// Position of the next entry.
    #[inline(always)]
    pub(super) fn position(&self) -> usize {
        self.bytes.position()
    }

    /// Position of the sibling that the entry whose attributes were just read states; nothing where it is none.
    pub(super) fn behind(&self, sibling: Option<u64>) -> Option<usize> {
        let offset = sibling.and_then(|sibling| usize::try_from(sibling).ok());
        let target = offset.and_then(|offset| offset.checked_sub(self.base));
        target.filter(|&target| target > self.position())
    }

    /// Go on at `position`, with an entry at `depth`.
    pub(super) fn go_to(&mut self, position: usize, depth: isize) {
        self.bytes.seek(position);
        self.depth = depth;
    }

    /// Step over the children of the entry at `depth` whose attributes were just read: by its sibling where one is
    /// stated.
    pub(super) fn jump(&mut self, sibling: Option<u64>, depth: isize) -> Option<()> {
        if let Some(target) = self.behind(sibling) {
            self.go_to(target, depth);
            return Some(());
        }
        while self.depth > depth && !self.bytes.is_empty() {
            let code = self.bytes.uleb()?;
            if code == 0 {
                self.depth -= 1;
                continue;
            }
            let plan = self.plans.number(code)?;
            let (_, has_children) = self.plans.kind(plan)?;
            self.depth += isize::from(has_children);
            self.plans.skip(plan, &mut self.bytes)?;
        }
        Some(())
    }
}

/// Read the value of `attribute`; what is of no use here is stepped over.
#[inline(always)]
fn value(attribute: &Attribute, bytes: &mut Bytes<'_>, encoding: Encoding) -> Option<Value> {
    let word = usize::from(encoding.format.word_size());
    let mut form = attribute.form;
    if form == constants::DW_FORM_indirect {
        form = bytes.indirect_form()?;
    }
    Some(match form {
        constants::DW_FORM_addr => {
            Value::Address(bytes.number(usize::from(encoding.address_size))?)
        }
        constants::DW_FORM_data1 => Value::Number(bytes.number(1)?),
        constants::DW_FORM_data2 => Value::Number(bytes.number(2)?),
        constants::DW_FORM_data4 => Value::Number(bytes.number(4)?),
        constants::DW_FORM_data8 => Value::Number(bytes.number(8)?),
        constants::DW_FORM_udata => Value::Number(bytes.uleb()?),
        constants::DW_FORM_sdata => positive(bytes.sleb()?),
        constants::DW_FORM_implicit_const => positive(attribute.implicit),
        constants::DW_FORM_sec_offset => Value::Offset(bytes.number(word)?),
        constants::DW_FORM_rnglistx => Value::ListIndex(bytes.uleb()?),
        constants::DW_FORM_addrx | constants::DW_FORM_GNU_addr_index => {
            Value::AddressIndex(bytes.uleb()?)
        }
        constants::DW_FORM_addrx1 => Value::AddressIndex(bytes.number(1)?),
        constants::DW_FORM_addrx2 => Value::AddressIndex(bytes.number(2)?),
        constants::DW_FORM_addrx3 => Value::AddressIndex(bytes.number(3)?),
        constants::DW_FORM_addrx4 => Value::AddressIndex(bytes.number(4)?),
        constants::DW_FORM_ref1 => Value::Reference(bytes.number(1)?),
        constants::DW_FORM_ref2 => Value::Reference(bytes.number(2)?),
        constants::DW_FORM_ref4 => Value::Reference(bytes.number(4)?),
        constants::DW_FORM_ref8 => Value::Reference(bytes.number(8)?),
        constants::DW_FORM_ref_udata => Value::Reference(bytes.uleb()?),
        other => {
            bytes.step(Step::of(other, encoding)?, encoding)?;
            Value::Other
        }
    })
}

fn positive(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Other, Value::Number)
}

impl Value {
    /// The number that is meant, where it is one.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The address that is meant, where it is one.
    pub(super) fn address(
        self,
        unit: &Unit<Slice<'_>>,
        dwarf: &gimli::Dwarf<Slice<'_>>,
    ) -> Option<u64> {
        match self {
            Self::Address(address) => Some(address),
            Self::AddressIndex(index) => {
                let index = DebugAddrIndex(usize::try_from(index).ok()?);
                dwarf.address(unit, index).ok()
            }
            _ => None,
        }
    }

    /// The list of ranges that is meant, as the library wants it.
    pub(super) fn ranges<'s>(self) -> Option<AttributeValue<Slice<'s>>> {
        let size = |number: u64| usize::try_from(number).ok();
        match self {
            Self::Offset(offset) | Self::Number(offset) => Some(AttributeValue::RangeListsRef(
                RawRangeListsOffset(size(offset)?),
            )),
            Self::ListIndex(index) => Some(AttributeValue::DebugRngListsIndex(DebugRngListsIndex(
                size(index)?,
            ))),
            _ => None,
        }
    }
}
