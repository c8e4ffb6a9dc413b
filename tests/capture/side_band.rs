//! The order in which a program is told what happens on several CPUs.
//!
//! Needs root; without it the test fails and says so.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashSet;
use std::hint::spin_loop;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use rawstack_bpf::{Change, SideBand};

/// Threads that are made while the side-band is read.
const THREADS: usize = 20_000;

/// Check that a thread's beginning is told before the name that it gives itself, on whatever CPUs the two happen and
/// whenever they are read.
#[test]
fn beginning_before_name() {
    let cpus: Vec<u32> =
        (0..u32::try_from(thread::available_parallelism().unwrap().get()).unwrap()).collect();
    let mut side_band = SideBand::open(&cpus).unwrap();
    let pid = process::id();
    let is_made = AtomicBool::new(false);
    let (mut begun, mut named, mut too_early, mut lost) = (HashSet::new(), 0, 0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..THREADS / 2 {
                // Two at a time: one for each CPU of a small machine.
                let name = |letter| format!("named-{number}-{letter}");
                let spawn = |name| Builder::new().name(name).spawn(spin_loop).unwrap();
                let threads = ["a", "b"].map(|letter| spawn(name(letter)));
                threads
                    .into_iter()
                    .for_each(|thread| thread.join().unwrap());
            }
            is_made.store(true, Ordering::Release);
        });
        let mut is_over = false;
        while !is_over {
            is_over = is_made.load(Ordering::Acquire);
            side_band.drain(|event| match event.change {
                Change::Forked { pid: of, tid, .. } if of == pid => {
                    begun.insert(tid);
                }
                Change::Named { tid, name, .. } if name.starts_with(b"named-") => {
                    named += 1;
                    too_early += u32::from(!begun.remove(&tid));
                }
                Change::Lost(count) => lost += count,
                _ => {}
            });
        }
    });
    assert_eq!(
        lost, 0,
        "records were lost: the rings are too small for this test"
    );
    assert_eq!(named, THREADS, "not all names were told");
    assert_eq!(
        too_early, 0,
        "names told before the beginning of their thread"
    );
}
