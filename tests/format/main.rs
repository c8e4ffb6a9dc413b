//! The archive, written, cut, damaged and read.

mod common;
mod cost;
mod cut;
mod disk_full;
mod flip;
mod golden;
mod recovery;
mod round_trip;
