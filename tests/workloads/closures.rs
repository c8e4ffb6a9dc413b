//! Closures of one function, each with another cost: see tests/e2e/diff.rs, which puts one more before them. Argument: units
//! of work.

use std::env;
use std::hint::black_box;

#[inline(never)]
fn repeat<F: Fn(u64) -> u64>(rounds: u64, work: F) -> u64 {
    (0..rounds).fold(1, |sum, i| sum ^ work(i))
}

#[inline(never)]
fn serve(unit: u64) -> u64 {
    // ONE MORE
    let small = repeat(10, |i| {
        let mut sum = i;
        for j in 0..400 {
            sum = black_box(sum.wrapping_mul(0x9e37_79b9) ^ j);
        }
        sum
    });
    let middle = repeat(10, |i| {
        let mut sum = small ^ i;
        for j in 0..900 {
            sum = black_box(sum.wrapping_add(j)).rotate_left(7);
        }
        sum
    });
    let large = repeat(10, |i| {
        let mut sum = middle ^ i;
        for j in 0..2000 {
            sum ^= black_box(sum << 3) ^ j;
        }
        sum
    });
    small ^ middle ^ large ^ unit
}

fn main() {
    let units: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    println!("{}", (0..units).fold(0, |sum, unit| sum ^ serve(unit)));
}
