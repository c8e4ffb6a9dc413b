//! An archive in memory: distinct stacks and how much time each took. Knows archives; knows no debug files.
//!
//! Archives are streamed: samples are added up as they come, so memory grows with what is distinct and not with
//! what was sampled. [`load`] is the only reader of archive rows.

mod archive;
mod chunks;
mod copies;
pub mod facts;
pub mod filter;
pub mod load;
pub mod pending;
pub mod rows;
pub mod runs;
pub mod summary;
mod tables;
pub mod timeline;
pub mod tree;

pub use facts::{ThreadFacts, ThreadId};
pub use filter::Filter;
pub use rows::{Profile, Row};
pub use runs::RunCounts;
pub use summary::Summary;
pub use timeline::Timeline;
pub use tree::{FrameId, ModuleId, NodeId, StackTree};
