//! Tests of `rawstack` and its library, from archives and programs that the tests make themselves.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails with the test")]

mod archive;
mod cache;
mod cases;
mod diff;
mod exports;
mod fixtures;
mod formats;
mod golden;
mod hostile;
mod import;
mod invocation;
mod kernel;
mod killer_copies;
mod killer_elf;
mod killer_sections;
mod killers;
mod merge;
mod offline;
mod oracle;
mod pack;
mod page;
mod pieces;
mod places;
mod rules;
mod run;
mod selection;
mod source;
mod symbols_only;
mod tui;
mod unwind;
mod unwind_limits;
mod vanishing;
