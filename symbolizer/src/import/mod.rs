//! Recordings of perf (`perf.data`) as archives.
//!
//! A file is hostile until checked: nothing is allocated for what it claims, records that make no sense are counted, and
//! what waits for its order does so in bounded memory. `linux-perf-event-reader` decodes records; the container around
//! them is read here, since the library for it takes sizes as they are stated.

mod archive;
mod attributes;
mod bytes;
mod convert;
mod halves;
mod header;
mod kernel;
mod maps;
mod notes;
mod perf_data;
mod rounds;
mod samples;
mod spaces;
mod unpack;

use std::fmt;
use std::io;
use std::path::Path;

use rawstack_format::Writer;
use rawstack_format::record::{Module, Segment};

use crate::error::{Error, Result};
use convert::{Converter, Failure};
use kernel::Kallsyms;
use perf_data::PerfData;

/// Kinds of records that perf itself writes; the kernel's have smaller numbers.
const FIRST_USER_TYPE: u32 = 64;
const HEADER_ATTR: u32 = 64;
const BUILD_ID: u32 = 67;
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// Why a recording of perf cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It contradicts itself.
    #[error("it is damaged: {0}; record again, or repair it with `perf inject`")]
    Damaged(&'static str),
    /// It is something that an archive cannot hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What an archive cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No recording of perf.
    #[error("it is no perf.data; give what `perf record` wrote")]
    NotPerf,
    /// From before 2010.
    #[error("it is of a perf of before 2010; record again")]
    Old,
    /// From `perf record --threads`.
    #[error("it is a folder, as `perf record --threads` makes; record without --threads")]
    Folder,
    /// A device or a pipe with a name.
    #[error("it is no file; give a stream of `perf record -o -` on standard input, as -")]
    NoFile,
    /// Standard input has a file's layout.
    #[error("it is no stream; give perf.data as a file, or use `perf record -o -`")]
    NoStream,
    /// From Android.
    #[error("it is of simpleperf, which is not read; convert it with simpleperf's own scripts")]
    Simpleperf,
    /// From `perf stat record`.
    #[error("it holds counts of `perf stat` and no samples; use `perf record`")]
    Counts,
    /// No event has addresses.
    #[error("no event of it says where a program was; record with `perf record -g`")]
    NoAddresses,
    /// Records cannot be told apart.
    #[error(
        "its records do not say which event they are of; record one event, or with a newer perf"
    )]
    NoIdentifier,
    /// The file of kernel symbols has none.
    #[error("its kernel symbols have no _stext; give a copy of /proc/kallsyms")]
    NoKallsyms,
    /// All addresses are 0.
    #[error("all addresses of its kernel symbols are 0; copy /proc/kallsyms as root")]
    HiddenKallsyms,
    /// Another boot's, or another kernel's.
    #[error(
        "the kernel symbols are of another boot or kernel; copy /proc/kallsyms where and while perf records"
    )]
    OtherKallsyms,
}

/// What a module's file says of its code.
#[derive(Clone, Debug, Default)]
pub struct CodeFacts {
    /// ELF class.
    pub class: u8,
    /// ELF machine.
    pub machine: u16,
    /// PT_LOAD segments that hold code.
    pub segments: Vec<Segment>,
}

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Samples.
    pub samples: u64,
    /// Samples that perf lost.
    pub lost: u64,
    /// What is not in the archive, or should be known: a line each.
    pub notes: Vec<String>,
}

/// A recording of perf that can be imported.
pub struct PerfRecording {
    data: PerfData,
    kallsyms: Option<Kallsyms>,
}

impl PerfRecording {
    /// Open the recording at `path` (`-`: a stream on standard input), with the text of `/proc/kallsyms` of its boot where
    /// there is one.
    pub fn open(path: &Path, kallsyms: Option<&str>) -> Result<Self> {
        let failed = |source| Error::PerfData {
            path: path.to_owned(),
            source,
        };
        let kallsyms = kallsyms.map(Kallsyms::parse).transpose();
        let kallsyms = kallsyms.map_err(|refused| failed(refused.into()))?;
        let data = PerfData::open(path).map_err(failed)?;
        Ok(Self { data, kallsyms })
    }

    /// Write it as an archive. `code` says what is known here of a module's file.
    pub fn write<W: io::Write>(
        self,
        path: &Path,
        writer: &mut Writer<W>,
        code: &dyn Fn(&Module) -> Option<CodeFacts>,
    ) -> Result<Imported> {
        let failed = |source| Error::PerfData {
            path: path.to_owned(),
            source,
        };
        let Self { mut data, kallsyms } = self;
        let mut converter = Converter::new(&data, kallsyms, writer, code);
        while let Some((time, raw)) = data.next().map_err(failed)? {
            converter.time(time);
            let mut taken = Ok(());
            data.decode(&raw, &mut |record| {
                taken = converter.take(record, raw.event);
            });
            taken.map_err(|error| match error {
                Failure::Refused(refused) => failed(refused.into()),
                Failure::Writing(error) => error,
            })?;
        }
        converter.finish(&data)
    }
}

impl fmt::Debug for PerfRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerfRecording").finish_non_exhaustive()
    }
}
