//! One pass over a unit's entries: which functions, and which inlined into them, contain the wanted addresses.

use std::mem;
use std::ops::Range;

use gimli::{Unit, UnitOffset, constants};

use super::cursor::{Cursor, EntryHead, Value};
use super::plan::Kind;
use super::units::Units;
use super::{Budget, Slice};

/// Entries between two looks at the budget.
const ENTRIES_PER_CHECK: u32 = 1 << 14;
/// Ranges of all functions of one unit together for each entry byte: more is no compiler's.
const RANGES_PER_BYTE: usize = 4;
/// Functions, one within the other, that may hold each wanted address: more is no compiler's.
const GRANTS_PER_ADDRESS: usize = 1024;
/// Functions inlined into each other that are looked into: what is deeper is left to the last of them.
const MAX_LEVEL: u32 = 4096;
/// The same for all addresses together, however few they are.
const FREE_GRANTS: usize = 1 << 21;

/// No node.
const NONE: u32 = u32::MAX;

/// A function, or an inlined one, that contains a wanted address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Its entry.
    pub(super) entry: UnitOffset,
    /// First address of its first range: where it is entered.
    pub(super) start: u64,
    /// The node that this one is inlined into; none for a function of its own.
    pub(super) parent: Option<u32>,
    /// File of the call, as the line program numbers it.
    pub(super) call_file: Option<u64>,
    /// Line of the call.
    pub(super) call_line: u32,
    /// Column of the call.
    pub(super) call_column: u32,
    /// Bytes that the ranges of the function of its own cover that this one is, or is inlined into.
    root_size: u64,
    /// How many others it is inlined into.
    level: u32,
}

/// What the pass found.
pub(super) struct Found {
    pub(super) nodes: Vec<Node>,
    /// For each wanted address its innermost node.
    pub(super) innermost: Vec<Option<u32>>,
    /// Whether an entry was damaged, or there was more than is accepted.
    pub(super) damaged: bool,
}

/// Find the functions that contain `wanted`, sorted addresses.
///
/// Entries below a function without a wanted address are jumped over. A compiler may put a function below another one
/// (nested functions of GNU C, methods of local classes), so what is still missing then is sought once more everywhere;
/// what was found before stays, so that an answer does not depend on what else is asked.
pub(super) fn find_functions<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    wanted: &[u64],
    budget: &Budget,
) -> Found {
    let mut walk = Walk::new(units, unit, wanted, budget);
    // A damaged entry ends the pass; what was found before it counts.
    let mut whole = walk.run(false).is_some();
    if walk.jumped && walk.innermost.contains(&NONE) {
        walk.first_pass = u32::try_from(walk.nodes.len()).unwrap_or(NONE);
        whole &= walk.run(true).is_some();
    }
    let innermost = walk
        .innermost
        .iter()
        .map(|&node| (node != NONE).then_some(node))
        .collect();
    Found {
        nodes: walk.nodes,
        innermost,
        damaged: !whole,
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
    /// Functions that are open at the place of the walk.
    open: Vec<Open>,
    /// Whether entries were jumped over.
    jumped: bool,
    /// Nodes below this number were found in an earlier pass.
    first_pass: u32,
    ranges_left: usize,
    grants_left: usize,
    until_check: u32,
    /// Indices of wanted addresses in the ranges of the entry at hand.
    hits: Vec<Range<usize>>,
}

/// A function that is open at the place of the walk.
struct Open {
    node: u32,
    /// Indices of wanted addresses among which are all that it holds.
    window: Range<usize>,
    /// Where it ends.
    end: End,
}

/// Where an entry with its children ends. The walk goes on there, whatever the children say: for other addresses they
/// are jumped over.
#[derive(Clone, Copy)]
struct End {
    /// Depth of what comes then.
    depth: isize,
    /// Position of its sibling, where it states one.
    sibling: Option<usize>,
    /// Position that neither it nor what is around it reaches over; `usize::MAX` where nobody states any.
    last: usize,
}

/// Attributes of an entry that matter here.
#[derive(Default)]
struct Attributes {
    low_pc: Option<Value>,
    high_pc: Option<Value>,
    ranges: Option<Value>,
    sibling: Option<u64>,
    call_file: Option<u64>,
    call_line: u32,
    call_column: u32,
}

/// Where an entry's code is.
#[derive(Default)]
struct Extent {
    /// First address of the first range.
    start: u64,
    /// Bytes of all ranges.
    size: u64,
}

impl<'w, 'a, 'c> Walk<'w, 'a, 'c> {
    fn new(
        units: &'w Units<'a, 'c>,
        unit: &'w Unit<Slice<'a>>,
        wanted: &'w [u64],
        budget: &'w Budget,
    ) -> Self {
        let grants = wanted.len().saturating_mul(GRANTS_PER_ADDRESS);
        Self {
            units,
            unit,
            wanted,
            budget,
            nodes: Vec::new(),
            innermost: vec![NONE; wanted.len()],
            open: Vec::new(),
            jumped: false,
            first_pass: 0,
            ranges_left: unit.header.unit_length().saturating_mul(RANGES_PER_BYTE),
            grants_left: grants.saturating_add(FREE_GRANTS),
            until_check: ENTRIES_PER_CHECK,
            hits: Vec::new(),
        }
    }

    /// Go over all entries; with `everywhere` also below those that cannot hold anything wanted as compilers write it.
    /// Nothing where an entry is damaged or a limit is met.
    fn run(&mut self, everywhere: bool) -> Option<()> {
        let mut cursor = Cursor::new(self.unit).ok()?;
        self.open.clear();
        while !cursor.is_empty() {
            self.leave(&mut cursor);
            self.until_check -= 1;
            if self.until_check == 0 {
                self.until_check = ENTRIES_PER_CHECK;
                if self.budget.is_spent() {
                    return None;
                }
            }
            let Some(head) = cursor.next()? else {
                self.close(&mut cursor);
                continue;
            };
            let (kind, has_children) = cursor.plans.kind(head.plan)?;
            match kind {
                Kind::Function => self.function(&mut cursor, &head, has_children, everywhere)?,
                Kind::Inlined if !self.open.is_empty() => {
                    self.inlined(&mut cursor, &head, has_children, everywhere)?
                }
                Kind::Closed if !everywhere => {
                    let mut sibling = None;
                    cursor.read(&head, has_children, |_, value| {
                        sibling = reference(value);
                    })?;
                    self.jumped = true;
                    cursor.jump(sibling, head.depth)?;
                }
                _ => cursor.skip(&head, has_children)?,
            }
        }
        Some(())
    }

    /// Where the next entry is not below the functions that are open, go on with their siblings.
    #[inline(always)]
    fn leave(&mut self, cursor: &mut Cursor<'_, 'a>) {
        while let Some(open) = self.open.last()
            && cursor.position() >= open.end.last
        {
            cursor.go_to(open.end.last, open.end.depth);
            self.open.pop();
        }
    }

    /// A list of children has ended: functions at the next entry's depth and below it are closed.
    fn close(&mut self, cursor: &mut Cursor<'_, 'a>) {
        let depth = cursor.depth();
        while let Some(open) = self.open.pop_if(|open| open.end.depth >= depth) {
            if let Some(sibling) = open.end.sibling {
                cursor.go_to(sibling, open.end.depth);
            }
        }
    }

    fn function(
        &mut self,
        cursor: &mut Cursor<'_, 'a>,
        head: &EntryHead,
        has_children: bool,
        everywhere: bool,
    ) -> Option<()> {
        let attributes = read(cursor, head, has_children)?;
        let extent = self.collect_hits(&attributes, 0..self.wanted.len());
        if self.hits.is_empty() {
            if has_children {
                self.pass_over(cursor, head, attributes.sibling, everywhere)?;
            }
            return Some(());
        }
        let node = Node {
            entry: head.offset,
            start: extent.start,
            parent: None,
            call_file: None,
            call_line: 0,
            call_column: 0,
            root_size: extent.size,
            level: 0,
        };
        let end = has_children.then(|| self.end(cursor, head, attributes.sibling));
        self.enter(node, end, |walk, held| walk.is_better(held, extent.size))
    }

    fn inlined(
        &mut self,
        cursor: &mut Cursor<'_, 'a>,
        head: &EntryHead,
        has_children: bool,
        everywhere: bool,
    ) -> Option<()> {
        let attributes = read(cursor, head, has_children)?;
        let (parent, window) = match self.open.last() {
            Some(open) => (open.node, open.window.clone()),
            None => (NONE, 0..0),
        };
        let extent = self.collect_hits(&attributes, window);
        if self.hits.is_empty() {
            // One without ranges says nothing of its children.
            if attributes.states_ranges() && has_children {
                self.pass_over(cursor, head, attributes.sibling, everywhere)?;
            }
            return Some(());
        }
        let (root_size, level) = self
            .nodes
            .get(parent as usize)
            .map_or((0, 0), |parent| (parent.root_size, parent.level + 1));
        if level > MAX_LEVEL {
            return Some(());
        }
        let node = Node {
            entry: head.offset,
            start: extent.start,
            parent: Some(parent),
            call_file: attributes.call_file,
            call_line: attributes.call_line,
            call_column: attributes.call_column,
            root_size,
            level,
        };
        // What is outside of the function around it, or claimed by a sibling before, stays as it is.
        let end = has_children.then(|| self.end(cursor, head, attributes.sibling));
        self.enter(node, end, |_, held| held == parent)
    }

    /// Where the entry ends whose attributes were just read: not behind what is around it.
    fn end(&self, cursor: &Cursor<'_, 'a>, head: &EntryHead, sibling: Option<u64>) -> End {
        let around = self.open.last().map_or(usize::MAX, |open| open.end.last);
        let sibling = cursor.behind(sibling).map(|sibling| sibling.min(around));
        End {
            depth: head.depth,
            sibling,
            last: sibling.unwrap_or(around),
        }
    }

    /// Jump over the children of an entry without a wanted address, or with `everywhere` go on to them.
    ///
    /// Then only functions of their own are sought there: what is inlined belongs to the entry, which holds nothing.
    fn pass_over(
        &mut self,
        cursor: &mut Cursor<'_, 'a>,
        head: &EntryHead,
        sibling: Option<u64>,
        everywhere: bool,
    ) -> Option<()> {
        if everywhere {
            let end = self.end(cursor, head, sibling);
            self.open.push(Open {
                node: NONE,
                window: 0..0,
                end,
            });
            return Some(());
        }
        self.jumped = true;
        cursor.jump(sibling, head.depth)
    }

    /// A function of its own counts where none was found, or where it is narrower: then it is nested in the other.
    fn is_better(&self, held: u32, size: u64) -> bool {
        match self.nodes.get(held as usize) {
            Some(node) => held >= self.first_pass && size < node.root_size,
            None => true,
        }
    }

    /// Give the hits to a new node where `may` agrees; the node is kept if any are given, and open for its children,
    /// where it has any, up to its `end`.
    fn enter(
        &mut self,
        node: Node,
        end: Option<End>,
        may: impl Fn(&Self, u32) -> bool,
    ) -> Option<()> {
        let id = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&id| id != NONE)?;
        let hits = mem::take(&mut self.hits);
        let mut used = false;
        let mut window = None;
        for index in hits.iter().cloned().flatten() {
            self.grants_left = self.grants_left.checked_sub(1)?;
            let held = self.innermost.get(index).copied().unwrap_or(NONE);
            if held != id
                && may(self, held)
                && let Some(slot) = self.innermost.get_mut(index)
            {
                *slot = id;
                used = true;
                let Range { start, end } = window.unwrap_or(index..index);
                window = Some(start.min(index)..end.max(index + 1));
            }
        }
        if used {
            self.nodes.push(node);
        }
        // One that holds nothing is open, too: what is inlined into it belongs to no function around it.
        self.open.extend(end.map(|end| Open {
            node: if used { id } else { NONE },
            window: window.unwrap_or_default(),
            end,
        }));
        self.hits = hits;
        Some(())
    }

    /// Find the wanted addresses, among those with indices in `window`, in the ranges of an entry.
    fn collect_hits(&mut self, attributes: &Attributes, window: Range<usize>) -> Extent {
        self.hits.clear();
        let mut extent = Extent::default();
        let dwarf = &self.units.dwarf;
        if let Some(value) = attributes.ranges {
            let list = value.ranges();
            let list = list.and_then(|list| dwarf.attr_ranges(self.unit, list).ok().flatten());
            let Some(mut ranges) = list else {
                return extent;
            };
            let mut first = true;
            while let Some(left) = self.ranges_left.checked_sub(1)
                && let Ok(Some(range)) = ranges.next()
            {
                self.ranges_left = left;
                if mem::take(&mut first) {
                    extent.start = range.begin;
                }
                extent.size = extent
                    .size
                    .saturating_add(range.end.saturating_sub(range.begin));
                self.collect(range.begin, range.end, &window);
            }
        } else if let Some(low) = attributes
            .low_pc
            .and_then(|low| low.address(self.unit, dwarf))
        {
            let end = match attributes.high_pc {
                Some(Value::Number(size)) => low.checked_add(size),
                Some(value) => value.address(self.unit, dwarf),
                None => None,
            };
            if let Some(end) = end {
                extent = Extent {
                    start: low,
                    size: end.saturating_sub(low),
                };
                self.collect(low, end, &window);
            }
        }
        extent
    }

    #[inline(always)]
    fn collect(&mut self, start: u64, end: u64, window: &Range<usize>) {
        let among = self.wanted.get(window.clone()).unwrap_or_default();
        let first = among.partition_point(|&wanted| wanted < start);
        let tail = among.get(first..).unwrap_or_default();
        if tail.first().is_some_and(|&wanted| wanted < end) && self.units.is_code(start) {
            let first = window.start + first;
            let behind = first + tail.partition_point(|&wanted| wanted < end);
            self.hits.push(first..behind);
        }
    }
}

/// Read what matters of the entry at hand.
#[inline(always)]
fn read(cursor: &mut Cursor<'_, '_>, head: &EntryHead, has_children: bool) -> Option<Attributes> {
    let mut found = Attributes::default();
    let line = |value: Value| {
        value
            .number()
            .and_then(|line| u32::try_from(line).ok())
            .unwrap_or(0)
    };
    cursor.read(head, has_children, |attribute, value| {
        match attribute.name {
            constants::DW_AT_low_pc => found.low_pc = Some(value),
            constants::DW_AT_high_pc => found.high_pc = Some(value),
            constants::DW_AT_ranges => found.ranges = Some(value),
            constants::DW_AT_sibling => found.sibling = reference(value),
            constants::DW_AT_call_file => found.call_file = value.number(),
            constants::DW_AT_call_line => found.call_line = line(value),
            constants::DW_AT_call_column => found.call_column = line(value),
            _ => {}
        }
    })?;
    Some(found)
}

fn reference(value: Value) -> Option<u64> {
    match value {
        Value::Reference(offset) => Some(offset),
        _ => None,
    }
}

impl Attributes {
    fn states_ranges(&self) -> bool {
        self.ranges.is_some() || self.low_pc.is_some()
    }
}
