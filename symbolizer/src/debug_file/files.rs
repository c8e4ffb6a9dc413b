//! The files of one module, and where they were looked for. Opens what it is told to; knows no order of places.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rawstack_format::record::Module;

use super::companion::SplitSearch;
use super::elf::ElfFile;
use super::identity::is_same;
use crate::error::Error;

/// Places that are remembered for a module, at most.
const MAX_TRIED: usize = 128;

/// Which rule found a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FoundBy {
    /// A folder named with `--symbol-dir`.
    SymbolDir,
    /// The folder in which perf keeps copies.
    PerfCache,
    /// A `.build-id` tree of the system, or where it has kernels.
    BuildIdTree,
    /// The debuglink of another file of the module.
    DebugLink,
    /// What a debuginfod client downloaded before.
    ClientCache,
    /// A debuginfod server.
    Server,
    /// The path that was recorded.
    RecordedPath,
    /// The archive itself (the vDSO), or a file given by name.
    Given,
    /// Symbols that were packed into another file of the module (`.gnu_debugdata`).
    MiniDebugInfo,
}

impl FoundBy {
    /// Name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::SymbolDir => "symbol-dir",
            Self::PerfCache => "perf-cache",
            Self::BuildIdTree => "build-id",
            Self::DebugLink => "debuglink",
            Self::ClientCache => "debuginfod-cache",
            Self::Server => "debuginfod",
            Self::RecordedPath => "recorded-path",
            Self::Given => "given",
            Self::MiniDebugInfo => "minidebuginfo",
        }
    }
}

/// What was at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A file of the module.
    Found,
    /// Nothing.
    Absent,
    /// A file of another build.
    OtherBuild,
    /// No ELF file.
    NotElf,
    /// Something that could not be read.
    Unreadable,
    /// A server or a network that failed.
    Failed,
}

impl Outcome {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::OtherBuild => "other-build",
            Self::NotElf => "not-elf",
            Self::Unreadable => "unreadable",
            Self::Failed => "failed",
        }
    }

    /// For people.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "nothing there",
            Self::OtherBuild => "another build",
            Self::NotElf => "no ELF file, or a damaged one",
            Self::Unreadable => "not readable",
            Self::Failed => "failed",
        }
    }
}

/// A place that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Rule that leads there.
    pub rule: FoundBy,
    /// The place: a path, or a server's URL.
    pub place: String,
    /// What was there.
    pub outcome: Outcome,
}

/// The files of one module.
#[derive(Debug, Default)]
pub struct ModuleFiles {
    /// Files in the order in which they were found, each with the rule that found it.
    pub files: Vec<(FoundBy, ElfFile)>,
    /// What the debug information shares with that of other modules (`dwz`).
    pub alternate: Option<ElfFile>,
    /// Name of the alternate file where the debug information needs one and it was not found.
    pub missing_alternate: Option<String>,
    /// The package of split units.
    pub package: Option<ElfFile>,
    /// Where files of split units may be.
    pub split: SplitSearch,
    /// How far the recorded addresses are above those of the files, modulo 2⁶⁴: not 0 where `prelink` moved one of them.
    pub moved: u64,
    /// Whether something was at a candidate's place and was another build.
    pub mismatch: bool,
    /// Places in the order in which they were looked at.
    pub tried: Vec<Tried>,
}

impl ModuleFiles {
    /// Only this file, which was given by name.
    pub fn given(file: ElfFile) -> Self {
        Self {
            files: vec![(FoundBy::Given, file)],
            ..Self::default()
        }
    }

    /// The file to take DWARF from: of several the one that holds most, the first of equal ones.
    pub fn dwarf(&self) -> Option<&ElfFile> {
        let files = self.files.iter().map(|(_, file)| file).enumerate();
        let holding = files.filter(|(_, file)| file.has_dwarf());
        let richest = holding.max_by_key(|(place, file)| (file.dwarf_size(), Reverse(*place)));
        richest.map(|(_, file)| file)
    }

    /// The file that holds the code itself.
    pub fn code(&self) -> Option<&ElfFile> {
        let files = self.files.iter().map(|(_, file)| file);
        files
            .filter(|file| !file.is_debug_only())
            .find(|file| !file.segments.is_empty())
    }

    /// The places of all files, that with most debug information first.
    pub fn paths(&self) -> impl DoubleEndedIterator<Item = &Path> {
        let own = self.files.iter().map(|(_, file)| file);
        let shared = self.alternate.iter().chain(&self.package);
        let all = self.dwarf().into_iter().chain(own).chain(shared);
        all.map(|file| file.path.as_path())
    }

    /// Whether there is nothing more to wish for.
    pub(super) fn is_whole(&self) -> bool {
        let named = |(rule, file): &(FoundBy, ElfFile)| {
            *rule != FoundBy::MiniDebugInfo && file.has_symtab()
        };
        self.dwarf().is_some() && self.files.iter().any(named)
    }

    pub(super) fn holds(&self, path: &Path) -> bool {
        self.files.iter().any(|(_, file)| file.path == path)
    }

    /// Open `path` and keep it if it is `module`.
    pub(super) fn take(&mut self, module: &Module, rule: FoundBy, path: &Path) {
        if self.holds(path) {
            return;
        }
        match open_candidate(path) {
            Ok(file) => self.take_file(module, rule, file),
            Err(outcome) => self.note(rule, path, outcome),
        }
    }

    /// Keep an opened file if it is `module`.
    pub(super) fn take_file(&mut self, module: &Module, rule: FoundBy, file: ElfFile) {
        let outcome = if is_same(module, &file) {
            Outcome::Found
        } else {
            Outcome::OtherBuild
        };
        let path = file.path.clone();
        self.settle(rule, &path, outcome, file);
    }

    /// Remember what was at `path`, and keep the file where it is the module's.
    pub(super) fn settle(&mut self, rule: FoundBy, path: &Path, outcome: Outcome, file: ElfFile) {
        self.note(rule, path, outcome);
        match outcome {
            Outcome::Found => self.files.push((rule, file)),
            _ => self.mismatch = true,
        }
    }

    /// Remember a place.
    pub(super) fn note(&mut self, rule: FoundBy, place: &Path, outcome: Outcome) {
        let place = place.display().to_string();
        let row = Tried {
            rule,
            place,
            outcome,
        };
        if self.tried.len() < MAX_TRIED && !self.tried.contains(&row) {
            self.tried.push(row);
        }
    }
}

/// Open what may be at `path`, or say what is there instead.
pub(super) fn open_candidate(path: &Path) -> Result<ElfFile, Outcome> {
    ElfFile::open(path).map_err(|error| match error {
        Error::Open { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Outcome::Absent,
            ErrorKind::InvalidInput => Outcome::NotElf,
            _ => Outcome::Unreadable,
        },
        _ => Outcome::NotElf,
    })
}

/// A file by which other files of the module may be found.
pub(super) fn real_and_given(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    paths.extend(path.canonicalize().ok().filter(|real| real != path));
    paths
}
