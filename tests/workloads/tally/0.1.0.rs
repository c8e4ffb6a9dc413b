//! Version 0.1.0.

use std::hint::black_box;

/// Numbers that are added up.
pub struct Table<T>(T);

impl<T: Into<u64> + Copy> Table<T> {
    #[inline(never)]
    fn add(&self, unit: u64) -> u64 {
        (0..48_000).fold(unit, |sum, i| black_box(sum ^ i).wrapping_mul(self.0.into()))
    }
}

#[inline(never)]
fn weigh(unit: u64) -> u64 {
    let mut sum = unit;
    for i in 0..60_000 {
        sum = black_box(sum.rotate_left(5) ^ i);
    }
    sum
}

/// A unit of work.
pub fn tally(unit: u64) -> u64 {
    weigh(unit) ^ Table(0x9e37_79b9u32).add(unit)
}
