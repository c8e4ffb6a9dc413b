//! The Rawstack archive: raw stack traces of one machine, readable on another.
#![forbid(unsafe_code)]

pub mod id;
pub mod record;
