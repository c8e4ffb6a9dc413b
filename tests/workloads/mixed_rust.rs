// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust part of `mixed`: generics over closures, iterator chains, trait objects, a sort, a hash map.

use std::collections::HashMap;

trait Step {
    fn step(&self, x: u64) -> u64;
}

struct Add(u64);
struct Twist;

impl Step for Add {
    #[inline(never)]
    fn step(&self, x: u64) -> u64 {
        (0..40).fold(x, |x, i| mix(x.wrapping_add(self.0), i))
    }
}

impl Step for Twist {
    #[inline(never)]
    fn step(&self, x: u64) -> u64 {
        (0..60).fold(x, |x, i| mix(x.rotate_left(13), i))
    }
}

#[inline]
fn mix(x: u64, i: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (x ^ (x >> 29)).wrapping_add(i)
}

#[inline(never)]
fn apply<T: Copy, F: Fn(T, u64) -> T>(count: u64, start: T, f: F) -> T {
    (0..count).fold(start, f)
}

#[inline(never)]
fn sort_pairs(x: u64) -> u64 {
    let mut pairs: Vec<(u64, u64)> = (0..300).map(|i| (mix(x, i), i)).collect();
    pairs.sort_unstable_by_key(|&(key, i)| mix(key, i));
    pairs.iter().step_by(3).map(|&(key, _)| key).fold(0, u64::wrapping_add)
}

#[inline(never)]
fn count_words(x: u64) -> u64 {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for i in 0..200 {
        *counts.entry(mix(x, i) % 50).or_default() += i;
    }
    counts.into_iter().map(|(key, count)| mix(key, count)).fold(0, u64::wrapping_add)
}

/// Called from C.
#[unsafe(no_mangle)]
pub extern "C" fn mixed_rust(x: u64) -> u64 {
    let steps: [Box<dyn Step>; 2] = [Box::new(Add(x)), Box::new(Twist)];
    let x = (0..50).fold(x, |x, i| steps[i % 2].step(x));
    let x = apply(2000, x, |x, i| mix(x ^ i, i));
    let (a, b) = apply(1000, (x, 1), |(a, b), i| (mix(a, b), b ^ i));
    sort_pairs(a) ^ count_words(b)
}
