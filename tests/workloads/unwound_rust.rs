// SPDX-License-Identifier: MIT OR Apache-2.0
//! unwound_rust SECONDS: as unwound_c, in Rust: closures in sorts, trait objects, panics on their way, hash maps, threads.

use std::collections::HashMap;
use std::env;
use std::fmt::Write;
use std::hint::black_box;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

#[repr(C)]
struct Timer {
    interval: [i64; 2],
    value: [i64; 2],
}

unsafe extern "C" {
    fn setitimer(which: i32, new: *const Timer, old: *mut Timer) -> i32;
    fn signal(number: i32, handler: usize) -> usize;
}

#[inline(never)]
fn leaf(mut x: u64) -> u64 {
    for _ in 0..200 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x)
}

trait Step {
    fn step(&self, x: u64) -> u64;
}

struct Leaf;
struct Chain(Box<dyn Step>, u64);

impl Step for Leaf {
    fn step(&self, x: u64) -> u64 {
        leaf(x)
    }
}

impl Step for Chain {
    fn step(&self, x: u64) -> u64 {
        self.0.step(x ^ self.1).wrapping_add(leaf(x))
    }
}

#[inline(never)]
fn recurse(x: u64, depth: u64) -> u64 {
    if depth == 0 { leaf(x) } else { recurse(x + depth, depth - 1) ^ leaf(x) }
}

struct Cleaned(u64);

impl Drop for Cleaned {
    fn drop(&mut self) {
        black_box(leaf(self.0));
    }
}

#[inline(never)]
fn panics(x: u64, depth: u64) -> u64 {
    let cleaned = Cleaned(x);
    if depth == 0 {
        panic::resume_unwind(Box::new(x));
    }
    panics(x + 1, depth - 1) + cleaned.0
}

#[inline(never)]
fn large(x: u64) -> u64 {
    let mut words = [x; 3000];
    words[(x % 3000) as usize] = leaf(x);
    black_box(&mut words)[5]
}

fn round_of_all(chain: &dyn Step, x: u64) -> u64 {
    let mut words: Vec<u64> = (0..40).map(|i| leaf(x ^ i)).collect();
    words.sort_by(|a, b| leaf(*a).cmp(&leaf(*b)));
    words.sort_unstable_by_key(|word| leaf(*word) >> 3);
    let mut counts: HashMap<String, u64> = HashMap::new();
    for word in &words {
        let mut text = String::new();
        _ = write!(text, "{:?} {:.3}", word, *word as f64 / 7.0);
        *counts.entry(text).or_default() += 1;
    }
    let caught = panic::catch_unwind(|| panics(x & 0xff, 5)).map_or(1, |x| x);
    let sum = words[3].wrapping_add(counts.len() as u64).wrapping_add(caught);
    sum.wrapping_add(chain.step(x)).wrapping_add(recurse(x & 0xffff, x % 30)).wrapping_add(large(x))
}

fn work(mut x: u64, end: Instant) {
    let chain = (0..12).fold(Box::new(Leaf) as Box<dyn Step>, |inner, i| Box::new(Chain(inner, i)));
    while Instant::now() < end {
        x = round_of_all(&*chain, x);
    }
    black_box(x);
}

fn main() {
    let seconds = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let tick = Timer { interval: [0, 1000], value: [0, 1000] };
    // SAFETY: both only set what comes with SIGPROF (27, by ITIMER_PROF 2), which is ignored (SIG_IGN is 1).
    unsafe {
        signal(27, 1);
        setitimer(2, &tick, std::ptr::null_mut());
    }
    let other = thread::spawn(move || work(1, end));
    work(2, end);
    _ = other.join();
}
