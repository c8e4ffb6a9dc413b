//! Gives raw stack traces names on another machine, later.
//!
//! The way through: an archive becomes a profile, the modules of the profile are looked for by build ID, their debug
//! information and symbols name the frames, and whatever prints takes the finished profile.

pub mod cache;
pub mod compare;
pub mod copied;
pub mod debug_file;
pub mod error;
pub mod explore;
pub mod export;
pub mod guard;
pub mod import;
pub mod jit;
pub mod merge;
pub mod origins;
pub mod output;
pub mod pack;
pub mod profile;
pub mod report;
pub mod resolve;
mod scrub;
pub mod source_files;
pub mod staged;
pub mod symbolize;
pub mod symbolized;
pub mod text;
pub mod tui;
pub mod unwind;
pub mod watch;
