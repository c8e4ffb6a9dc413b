//! The archive, written, cut, damaged and read.

// A failed test is what a panic is for, and the sizes here are known.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;
mod copies;
mod cost;
mod cut;
mod disk_full;
mod draw;
mod every_kind;
mod flip;
mod golden;
mod parts;
mod recovery;
mod round_trip;
