//! A program that uses a crate of which there are two versions: see tests/e2e/diff.rs. Argument: units of work.

use std::env;

fn main() {
    let units: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    println!("{}", (0..units).fold(0, |sum, unit| sum ^ tally::tally(unit)));
}
