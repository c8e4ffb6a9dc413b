//! Which addresses may be ones of code, asked about each word of each copied stack. Knows nothing of stacks.

use std::ops::Range;

use crate::program::Program;

/// Granules of addresses of which it is remembered what code is in them.
const KNOWN: usize = 512;

/// Bits of an address within a granule: what lies next to each other, a library's code or a heap, is in a few of them.
const GRANULE_SHIFT: u32 = 21;

/// A granule that no address has.
const NO_GRANULE: u64 = u64::MAX;

/// Bits of an address: a return address may carry a pointer authentication code above.
const ADDRESS_MASK: u64 = if cfg!(target_arch = "aarch64") {
    (1 << 48) - 1
} else {
    u64::MAX
};

/// Nothing can be mapped below.
const LOWEST: u64 = 1 << 12;
/// Behind all addresses of the largest address spaces.
const HIGHEST: u64 = 1 << 56;
/// Any address may be one of code.
const ANYWHERE: Range<u64> = LOWEST..HIGHEST;

/// What is known of a granule.
#[derive(Clone, Copy, Debug)]
struct Granule {
    number: u64,
    /// From the first code in it to the end of the last, whatever is between.
    from: u64,
    to: u64,
    /// There is something else between.
    has_gaps: bool,
}

const UNKNOWN: Granule = Granule {
    number: NO_GRANULE,
    from: 0,
    to: 0,
    has_gaps: false,
};

/// The code of one program.
#[derive(Debug)]
pub(crate) struct CodeRanges {
    /// Whose, and which of its mappings.
    of: Option<(u32, u32)>,
    /// Upwards, none next to another.
    ranges: Vec<Range<u64>>,
    /// From the first to the end of the last.
    all: Range<u64>,
    /// The widest gap between two of them: between a program and its libraries, where heaps are, and most numbers that look
    /// like addresses point.
    gap: Range<u64>,
    /// By number, and other numbers with the same remainder.
    granules: Vec<Granule>,
}

impl Default for CodeRanges {
    fn default() -> Self {
        Self {
            of: None,
            ranges: vec![ANYWHERE],
            all: ANYWHERE,
            gap: 0..0,
            granules: vec![UNKNOWN; KNOWN],
        }
    }
}

impl CodeRanges {
    /// Take the mappings of `program` as they are now. As long as not all of them are known, code may be anywhere.
    pub(crate) fn enter(&mut self, program: Option<&Program>) {
        let of = program.map(|program| (program.number, program.version));
        if self.of == of && of.is_some() {
            return;
        }
        self.of = of;
        self.ranges = match program {
            Some(program) if program.is_whole() => ranges(program),
            _ => vec![ANYWHERE],
        };
        self.all = match (self.ranges.first(), self.ranges.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        };
        let pairs = self.ranges.iter().zip(self.ranges.iter().skip(1));
        let gaps = pairs.map(|(low, high)| low.end..high.start);
        self.gap = gaps.max_by_key(|gap| gap.end - gap.start).unwrap_or(0..0);
        self.granules.fill(UNKNOWN);
    }

    /// Whether `value` may be an address of code.
    #[inline]
    pub(crate) fn may_hold(&mut self, value: u64) -> bool {
        let address = value & ADDRESS_MASK;
        if !self.all.contains(&address) || self.gap.contains(&address) {
            return false;
        }
        let number = address >> GRANULE_SHIFT;
        let mut granule = self.granules[place(number)];
        if granule.number != number {
            granule = self.learn(number);
        }
        (granule.from..granule.to).contains(&address)
            && (!granule.has_gaps || self.is_in_range(address))
    }

    #[cold]
    fn learn(&mut self, number: u64) -> Granule {
        let (start, end) = (
            number << GRANULE_SHIFT,
            (number + 1).saturating_mul(1 << GRANULE_SHIFT),
        );
        let first = self.ranges.partition_point(|range| range.end <= start);
        let rest = self.ranges.get(first..).unwrap_or_default();
        let own = rest.iter().take_while(|range| range.start < end);
        let (from, to) = own.clone().fold((end, start), |(from, to), range| {
            (from.min(range.start.max(start)), to.max(range.end.min(end)))
        });
        let granule = Granule {
            number,
            from,
            to,
            has_gaps: own.count() > 1,
        };
        self.granules[place(number)] = granule;
        granule
    }

    fn is_in_range(&self, address: u64) -> bool {
        let behind = self.ranges.partition_point(|range| range.end <= address);
        let range = self.ranges.get(behind);
        range.is_some_and(|range| range.contains(&address))
    }
}

/// Where what is known of a granule stands: a remainder by the length is a place.
fn place(number: u64) -> usize {
    usize::try_from(number % KNOWN as u64).unwrap_or(0)
}

/// Whether no bit of an address is set: a return address of 0, signed or not.
#[inline]
pub(crate) fn is_nothing(value: u64) -> bool {
    value & ADDRESS_MASK == 0
}

/// Whether anything can be mapped there. Most words on a stack are nothing of the kind.
#[inline]
pub(crate) fn is_address(value: u64) -> bool {
    (LOWEST..HIGHEST).contains(&(value & ADDRESS_MASK))
}

fn ranges(program: &Program) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for mapping in program.mappings.values() {
        let Range { start, end } = mapping.addresses;
        match ranges.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => ranges.push(start..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(version: u32, ranges: &[Range<u64>]) -> Program {
        Program {
            version,
            ..Program::with_code(ranges)
        }
    }

    /// Check that the edges of mappings are told exactly, of those that share a granule, fill several, and end at one's
    /// edge; and the same once more, out of what is remembered.
    #[test]
    fn edges() {
        let mapped = [
            0x40_0000..0x40_2000,
            0x40_2000..0x40_3000,
            0x40_5000..0x40_6000,
            0x7f00_0010_0000..0x7f00_0060_0000,
            0x7f00_00c0_0000..0x7f00_00e0_0000,
        ];
        let mut ranges = CodeRanges::default();
        ranges.enter(Some(&program(1, &mapped)));
        for _ in 0..2 {
            for range in &mapped {
                for address in [
                    range.start - 1,
                    range.start,
                    (range.start + range.end) / 2,
                    range.end - 1,
                    range.end,
                ] {
                    let is_mapped = mapped.iter().any(|range| range.contains(&address));
                    assert_eq!(ranges.may_hold(address), is_mapped, "{address:#x}");
                }
            }
            // Another granule of the same place.
            let other = 0x40_1000 + ((KNOWN as u64) << GRANULE_SHIFT);
            assert!(!ranges.may_hold(other) && ranges.may_hold(0x40_1000));
        }
    }

    /// Check that where code may be anywhere any address may be one of it, and no number is; and that what is remembered
    /// goes when mappings change, or when it is another program.
    #[test]
    fn unknown_code() {
        let mut ranges = CodeRanges::default();
        let mut unknown = program(1, std::slice::from_ref(&(0x40_0000..0x40_1000)));
        unknown.is_whole = false;
        let values = [0x5555_0000_1000, 0x1000, 0xfff, 200, 0, u64::MAX];
        for program in [Some(&unknown), None] {
            ranges.enter(program);
            let found = values.map(|value| ranges.may_hold(value));
            assert_eq!(found, [true, true, false, false, false, false]);
        }
        let known = program(2, std::slice::from_ref(&(0x40_0000..0x40_1000)));
        ranges.enter(Some(&known));
        assert_eq!(values.map(|value| ranges.may_hold(value)), [false; 6]);
        assert!(ranges.may_hold(0x40_0000));
        ranges.enter(Some(&program(3, &[])));
        assert!(!ranges.may_hold(0x40_0000));
    }
}
