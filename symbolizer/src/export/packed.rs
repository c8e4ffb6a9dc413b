//! Samples of one thread, packed: each number as its difference to the one before.

/// A sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PackedSample {
    /// Nanoseconds since the start.
    pub(super) time_ns: u64,
    /// Stack, where there is one.
    pub(super) stack: Option<u32>,
    /// Weight.
    pub(super) weight: u64,
}

/// Samples in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct PackedSamples {
    bytes: Vec<u8>,
    last: PackedSample,
    length: usize,
    /// Whether a sample is older than the one before it.
    unsorted: bool,
    first_weight: Option<u64>,
}

impl PackedSamples {
    /// Add a sample.
    pub(super) fn push(&mut self, stack: Option<u32>, time_ns: u64, weight: u64) {
        self.unsorted |= time_ns < self.last.time_ns;
        put(
            &mut self.bytes,
            zigzag(time_ns.wrapping_sub(self.last.time_ns)),
        );
        put(
            &mut self.bytes,
            stack.map_or(0, |stack| u64::from(stack) + 1),
        );
        put(
            &mut self.bytes,
            zigzag(weight.wrapping_sub(self.last.weight)),
        );
        self.last = PackedSample {
            time_ns,
            stack,
            weight,
        };
        self.length += 1;
        self.first_weight.get_or_insert(weight);
    }

    /// Weight of the first sample.
    pub(super) fn first_weight(&self) -> Option<u64> {
        self.first_weight
    }

    /// All samples by time. Only those that are out of order are ever unpacked at once.
    pub(super) fn in_order(&self) -> InOrder<'_> {
        let sorted = self.unsorted.then(|| {
            let mut samples: Vec<_> = Unpack::of(self).collect();
            samples.sort_by_key(|sample| sample.time_ns);
            samples
        });
        InOrder {
            packed: self,
            sorted,
        }
    }
}

/// Samples by time.
pub(super) struct InOrder<'p> {
    packed: &'p PackedSamples,
    sorted: Option<Vec<PackedSample>>,
}

impl InOrder<'_> {
    /// Number of samples.
    pub(super) fn len(&self) -> usize {
        self.packed.length
    }

    /// From first to last.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = PackedSample> + '_> {
        match &self.sorted {
            Some(samples) => Box::new(samples.iter().copied()),
            None => Box::new(Unpack::of(self.packed)),
        }
    }
}

struct Unpack<'p> {
    bytes: &'p [u8],
    last: PackedSample,
}

impl<'p> Unpack<'p> {
    fn of(samples: &'p PackedSamples) -> Self {
        Self {
            bytes: &samples.bytes,
            last: PackedSample::default(),
        }
    }

    fn next_number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(number)
    }
}

impl Iterator for Unpack<'_> {
    type Item = PackedSample;

    fn next(&mut self) -> Option<PackedSample> {
        let time = unzigzag(self.next_number()?);
        let stack = self.next_number()?;
        let weight = unzigzag(self.next_number()?);
        self.last = PackedSample {
            time_ns: self.last.time_ns.wrapping_add(time),
            stack: stack
                .checked_sub(1)
                .and_then(|stack| u32::try_from(stack).ok()),
            weight: self.last.weight.wrapping_add(weight),
        };
        Some(self.last)
    }
}

/// A difference whose sign is its last bit, so that small ones are short whichever way they go.
fn zigzag(difference: u64) -> u64 {
    let sign = if difference >> 63 == 1 { u64::MAX } else { 0 };
    (difference << 1) ^ sign
}

fn unzigzag(number: u64) -> u64 {
    let sign = if number & 1 == 1 { u64::MAX } else { 0 };
    (number >> 1) ^ sign
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            bytes.push(low & 0x7f);
            break;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that samples come back as they were, the greatest numbers too, and by time where they came out of order.
    #[test]
    fn there_and_back() {
        let rows = [
            (Some(3), 10, 5),
            (None, u64::MAX, u64::MAX),
            (Some(u32::MAX - 1), 11, 0),
        ];
        let mut packed = PackedSamples::default();
        for (stack, time, weight) in rows {
            packed.push(stack, time, weight);
        }
        let back: Vec<_> = packed
            .in_order()
            .iter()
            .map(|sample| (sample.stack, sample.time_ns, sample.weight))
            .collect();
        assert_eq!(back, [rows[0], rows[2], rows[1]]);
        let mut steady = PackedSamples::default();
        (0..1000).for_each(|number| steady.push(Some(1), number * 1_000_000, 1_000_000));
        assert_eq!(steady.in_order().iter().count(), 1000);
        assert!(steady.bytes.len() < 5100, "{}", steady.bytes.len());
    }
}
