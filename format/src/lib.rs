//! The Rawstack archive: raw stack traces of one machine, readable on another.
//!
//! `FORMAT.md` beside this crate states every byte. In short: a [`Header`], then chunks. A chunk is a 64-byte frame at
//! a 64-byte boundary around one zstd frame, which holds one rkyv root of at most [`MAX_RAW_LEN`] bytes. A byte once
//! written is never rewritten, so a file that was cut anywhere keeps every whole chunk before the cut.
//!
//! [`Writer`] turns [`record::Record`]s into chunks; [`Reader`] turns chunks into records and keeps an exact account of
//! what is damaged or missing. An [`Encoder`] does the first half of writing: what it gives can be kept and put into
//! archives later. [`ArchiveFile`] is the file that a recording goes to. This crate knows nothing of BPF,
//! ELF or a command line.
//!
//! ```
//! use rawstack_format::record::{End, Record};
//! use rawstack_format::{Counters, Reader, Writer, WriterOptions};
//!
//! # fn main() -> rawstack_format::Result<()> {
//! let mut writer = Writer::new(Vec::new(), WriterOptions::default())?;
//! writer.write(&Record::End(End::default()), Counters::default())?;
//! let archive = writer.finish()?;
//!
//! let mut reader = Reader::new(archive.as_slice())?;
//! while let Some(chunk) = reader.next()? {
//!     println!("{} at byte {}: {:?}", chunk.info.kind, chunk.info.position, chunk.record);
//! }
//! assert!(reader.damage().is_none() && reader.damage().ended);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod chunk;
mod compress;
mod content;
pub mod copies;
mod damage;
mod encoded;
mod error;
mod file;
mod header;
pub mod id;
mod index;
mod reader;
pub mod record;
mod source;
mod v1;
mod writer;

pub use chunk::{ChunkInfo, Counters, FRAME_LEN, Kind, MAX_RAW_LEN, MAX_STORED_LEN};
pub use damage::{Cause, Damage, Gap, MAX_GAPS};
pub use encoded::{Encoded, Encoder};
pub use error::{Error, Invalid, Result};
pub use file::{ArchiveFile, SYNC_INTERVAL};
pub use header::{HEADER_LEN, Header};
pub use index::{Index, IndexEntry};
pub use reader::{Chunk, Reader, Selection};
pub use v1::MAX_ROWS;
pub use v1::bound;
pub use writer::{Writer, WriterOptions};
