//! Generic functions, closures and methods of traits under names that the compiler makes anew in each build: see
//! tests/e2e/diff.rs. Argument: units of work.

use std::env;

trait Step {
    fn step(&self, seed: u64) -> u64;
}

struct Mixer(u64);

impl Step for Mixer {
    #[inline(never)]
    fn step(&self, seed: u64) -> u64 {
        (0..8000).fold(seed, |sum, i| (sum ^ (sum >> 7)).wrapping_mul(self.0).wrapping_add(i))
    }
}

#[inline(never)]
fn repeat<F: Fn(u64) -> u64>(rounds: u64, work: F) -> u64 {
    (0..rounds).fold(1, |sum, i| sum ^ work(i))
}

#[inline(never)]
fn request(unit: u64) -> u64 {
    // Moves the number of the closure behind it.
    #[cfg(feature_first)]
    let unit = [unit].iter().map(|unit| unit + 1).sum::<u64>();
    let shift = unit % 7;
    repeat(10, move |i| {
        let mut sum = i;
        for j in 0..800 {
            sum = sum.rotate_left(5).wrapping_mul(0x9e37_79b9).wrapping_add(j ^ shift);
        }
        std::hint::black_box(sum)
    }) ^ Mixer(0x2545_f491_4f6c_dd1d).step(unit)
}

fn main() {
    let units: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    println!("{}", (0..units).fold(0, |sum, unit| sum ^ request(unit)));
}
