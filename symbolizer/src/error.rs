//! Errors of the library: what failed, on which file, why. What cannot be resolved is data and never an error.

use std::io;
use std::path::PathBuf;
use std::result;

use parquet::errors::ParquetError;
use rayon::ThreadPoolBuildError;

use crate::import::ImportError;

/// Result of this crate.
pub type Result<T> = result::Result<T, Error>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or mapped.
    #[error("failed to open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is no ELF file, or its headers are damaged.
    #[error("failed to read {}: not an ELF file, or its headers are damaged", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// An archive could not be read.
    #[error("failed to read {}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// Why.
        #[source]
        source: rawstack_format::Error,
    },
    /// Samples are of more runs than are told apart.
    #[error("failed to compare {}: its samples bring the runs, or parts of them, beyond {most}; select some with --run", path.display())]
    TooManyRuns {
        /// The archive.
        path: PathBuf,
        /// How many are told apart.
        most: usize,
    },
    /// More functions in more runs than are compared at once.
    #[error(
        "failed to compare: {functions} functions in {runs} runs are too many; select runs with --run"
    )]
    TooLarge {
        /// Functions.
        functions: usize,
        /// Runs.
        runs: usize,
    },
    /// Standard input is named twice.
    #[error("failed to read standard input twice; give each archive but one as a file")]
    StandardInputTwice,
    /// A recording of perf could not be imported.
    #[error("failed to import {}", path.display())]
    PerfData {
        /// The recording.
        path: PathBuf,
        /// Why.
        #[source]
        source: ImportError,
    },
    /// An imported archive could not be written.
    #[error("failed to write the imported archive")]
    Import(#[source] rawstack_format::Error),
    /// A merged archive could not be written.
    #[error("failed to write the merged archive")]
    Merge(#[source] rawstack_format::Error),
    /// Threads could not be started.
    #[error("failed to start worker threads: {why}; free memory or raise the limit of processes")]
    Threads {
        /// Why. It is its own source, too, and would be told twice.
        why: ThreadPoolBuildError,
    },
    /// There is no sample to draw.
    #[error(
        "failed to draw: no sample is selected; look at `rawstack info` and at the selecting options"
    )]
    NothingToDraw,
    /// A format that holds one archive was asked to hold another number of them.
    #[error("failed to write: this format holds one archive, as hosts share no clock; give one")]
    OneArchive,
    /// Two archives that were to become one dataset are of the same recording.
    #[error("failed to write: two of the archives are of the same recording; give it once")]
    SameRecording,
    /// Samples of one archive did not come together.
    #[error("failed to write: the samples of an archive are not together; export it by itself")]
    Apart,
    /// A file of a dataset could not be written.
    #[error("failed to write {}", path.display())]
    Dataset {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A Parquet file could not be written.
    #[error("failed to write the output")]
    Parquet(#[from] ParquetError),
    /// Output could not be written.
    #[error("failed to write the output")]
    Write(#[from] io::Error),
    /// JSON output could not be written.
    #[error("failed to write the output")]
    Json(#[from] serde_json::Error),
    /// CSV output could not be written.
    #[error("failed to write the output")]
    Csv(#[from] csv::Error),
}
