//! Archive → samples with their stacks, names and outcomes: a stream that holds one epoch's tables.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use rawstack_format::Chunk;
use rawstack_format::record::Vdso;

use super::archive::Archive;
use super::chunks::Chunks;
use super::facts::FactsTable;
use super::filter::Filter;
use super::pending::Joined;
use super::rows::EventFacts;
use super::summary::Summary;
use super::tree::StackTree;
use crate::copied::Unwinding;
use crate::error::{Error, Result};
use crate::jit::JitTable;
use crate::resolve::KernelSymbolTable;
use crate::watch;

/// Bytes read from an archive at once.
const READ_LEN: usize = 1 << 17;

/// What all archives of one command share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Each archive's own facts.
    pub archives: Vec<Summary>,
    /// Modules, frames and stacks.
    pub tree: StackTree,
    /// Threads.
    pub facts: FactsTable,
    /// Events.
    pub events: Vec<EventFacts>,
    /// Kernel symbols of each archive.
    pub kernels: Vec<KernelSymbolTable>,
    /// vDSO images, each with the number of its archive.
    pub vdsos: Vec<(u32, Vdso)>,
    /// Code that processes made.
    pub jit: JitTable,
    /// Unwinds copies of stacks; without it stacks are as frame pointers gave them.
    pub unwinding: Option<Unwinding>,
}

/// Called with each selected sample, in the order of the archive, and the index of its event in [`Shared::events`].
pub type EachSample<'f> = dyn FnMut(&Shared, &Joined, u32) -> Result<()> + 'f;

/// Read the archive at `path` (`-`: standard input) to its end.
///
/// Samples come in the order of their batches, within a batch by time. One whose user half is still to come holds up
/// those behind it until its completion is read, in bounded memory.
pub fn read(
    shared: &mut Shared,
    path: &Path,
    filter: &Filter,
    each: &mut EachSample<'_>,
) -> Result<()> {
    let mut parts = Parts::open(path)?;
    while parts.read(shared, filter, each)? {}
    Ok(())
}

/// An archive that is read part by part: a merged one has several, any other one.
#[derive(Debug)]
pub struct Parts {
    path: PathBuf,
    chunks: Chunks,
    /// First chunk of the next part.
    first: Option<Chunk>,
    is_read: bool,
}

impl Parts {
    /// Open the archive at `path` (`-`: standard input).
    pub fn open(path: &Path) -> Result<Self> {
        let chunks = Chunks::read(input(path)?).map_err(|source| Error::Archive {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            chunks,
            first: None,
            is_read: false,
        })
    }

    /// Whether it is a merged archive.
    pub fn are_merged(&self) -> bool {
        self.chunks.header().has_parts()
    }

    /// Read the next part into `shared`, as [`read`] does; `false` where there was none.
    pub fn read(
        &mut self,
        shared: &mut Shared,
        filter: &Filter,
        each: &mut EachSample<'_>,
    ) -> Result<bool> {
        if self.is_read {
            return Ok(false);
        }
        let failed = |source| Error::Archive {
            path: self.path.clone(),
            source,
        };
        let name = self.path.display().to_string();
        let mut archive = Archive::begin(shared, filter, &name, &self.chunks);
        self.first = archive.read(&mut self.chunks, self.first.take(), each, &failed)?;
        self.is_read = self.first.is_none();
        Ok(true)
    }
}

/// What is read of an archive, `-` being standard input.
pub(crate) type Input = BufReader<Box<dyn Read + Send>>;

/// Open an archive.
pub(crate) fn input(path: &Path) -> Result<Input> {
    let input: Box<dyn Read + Send> = if path == Path::new("-") {
        watch::no_way_back();
        Box::new(io::stdin())
    } else {
        let open = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(open)?;
        if file.metadata().map_err(open)?.is_dir() {
            return Err(open(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Box::new(file)
    };
    Ok(BufReader::with_capacity(READ_LEN, input))
}
