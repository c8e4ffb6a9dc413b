//! The table of version 0.2.0.

use std::hint::black_box;

/// Numbers that are added up.
pub struct Table<T>(T);

impl<T: Into<u64> + Copy> Table<T> {
    pub(crate) fn new(factor: T) -> Self {
        Self(factor)
    }

    #[inline(never)]
    pub(crate) fn add(&self, unit: u64) -> u64 {
        (0..48_000).fold(unit, |sum, i| black_box(sum ^ i).wrapping_mul(self.0.into()))
    }
}
