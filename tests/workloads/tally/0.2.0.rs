//! Version 0.2.0: weighs twice as long, has another function before, and its table lies in a file of its own.

use std::hint::black_box;

mod table;
pub use table::Table;

/// Whether there is anything to tally.
#[inline(never)]
fn is_any(unit: u64) -> bool {
    black_box(unit) != u64::MAX
}

#[inline(never)]
fn weigh(unit: u64) -> u64 {
    let mut sum = unit;
    for i in 0..120_000 {
        sum = black_box(sum.rotate_left(5) ^ i);
    }
    sum
}

/// A unit of work.
pub fn tally(unit: u64) -> u64 {
    if !is_any(unit) {
        return 0;
    }
    weigh(unit) ^ Table::new(0x9e37_79b9u32).add(unit)
}
