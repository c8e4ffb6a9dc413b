//! What the tests of all crates share: workloads, runs with a deadline, oracles, golden files, a bare root.
//!
//! Everything here panics with a message when it cannot do its work: a test that could not look has failed, and is
//! never skipped. Nothing here knows how an archive is laid out or uses code of the crates under test, so that what it
//! says about them is a second opinion.
#![forbid(unsafe_code)]

pub mod bare_root;
pub mod debug_tree;
pub mod elf;
pub mod golden;
pub mod json;
pub mod oracle;
pub mod programs;
pub mod run;
pub mod turn;

pub use run::{Output, Run, Running};
