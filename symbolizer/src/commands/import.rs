//! `rawstack import`.

use std::fs;
use std::io;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_format::WriterOptions;
use rawstack_format::record::{Mapping, Module, Segment};
use rawstack_symbolizer::debug_file::elf::{ElfFile, PF_X};
use rawstack_symbolizer::debug_file::identity::content_hash;
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::import::{CodeFacts, PerfRecording};
use rawstack_symbolizer::text::clean;
use rawstack_symbolizer::watch;

use super::made;
use crate::args::archive::ImportArgs;

/// Salt of all imported archives: the same recording gives the same bytes.
const SALT: u32 = 0x7065_7266;
/// Largest file of kernel symbols, in bytes.
const MAX_KALLSYMS: u64 = 256 << 20;

/// Make an archive of a recording of perf.
pub(crate) fn run(args: &ImportArgs) -> Result<ExitCode> {
    let target = args.made.output.as_path();
    if args.file == Path::new("-") {
        watch::no_way_back();
    } else if args.file.canonicalize().ok() == target.canonicalize().ok() && target.exists() {
        bail!(
            "failed to write {}: it is the recording to read; name another file with -o",
            target.display()
        );
    }
    let kallsyms = args.kallsyms.as_deref().map(kallsyms).transpose()?;
    let recording = PerfRecording::open(&args.file, kallsyms.as_deref())?;
    let locator = Locator::new(Places::of_machine(args.symbol_dir.clone()));
    let mut options = WriterOptions::default();
    options.salt = Some(SALT);
    let (imported, bytes) = made::make(&args.made, options, |writer| {
        let recorded = changed(&args.file).unwrap_or_default();
        let code = |module: &Module, mapping: &Mapping| {
            if module.build_id.is_some() {
                return by_build_id(&locator, module);
            }
            by_inode(module, mapping, recorded)
        };
        Ok(recording.write(&args.file, writer, &code)?)
    })?;
    if !args.made.quiet {
        let file = args.file.display();
        for note in &imported.notes {
            eprintln!("rawstack: {file}: {}", clean(note));
        }
        let (samples, lost) = (imported.samples, imported.lost);
        eprintln!(
            "rawstack: {samples} samples, {lost} lost by perf, {bytes} bytes: {}",
            target.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn kallsyms(path: &Path) -> Result<String> {
    let failed = || format!("failed to read --kallsyms {}", path.display());
    if fs::metadata(path).with_context(failed)?.len() > MAX_KALLSYMS {
        bail!(
            "{}: it is too large; give a copy of /proc/kallsyms",
            failed()
        );
    }
    let bytes = fs::read(path).with_context(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// When the file's content or place last changed, in seconds and nanoseconds since 1970.
fn changed(path: &Path) -> io::Result<(i64, i64)> {
    let meta = fs::metadata(path)?;
    let (written, moved) = (
        (meta.mtime(), meta.mtime_nsec()),
        (meta.ctime(), meta.ctime_nsec()),
    );
    Ok(written.max(moved))
}

/// How the code of a module lies in its file, where that is found.
fn by_build_id(locator: &Locator, module: &Module) -> Option<CodeFacts> {
    let found = watch::reading(iter::empty(), || locator.locate(module));
    found.code().map(code)
}

/// What perf does not say of a file that is still the one that was mapped: in the same place on the same device, and
/// not changed since the recording.
fn by_inode(module: &Module, mapping: &Mapping, recorded: (i64, i64)) -> Option<CodeFacts> {
    let path = Path::new(&module.path);
    let meta = fs::metadata(path).ok()?;
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let is_same = mapping.inode != 0
        && meta.ino() == mapping.inode
        && device == (mapping.device_major, mapping.device_minor)
        && changed(path).ok()? < recorded;
    if !(is_same && meta.is_file()) {
        return None;
    }
    let file = watch::reading(iter::once(path), || ElfFile::open(path)).ok()?;
    let build_id = file.build_id.clone();
    let content_hash = build_id.is_none().then(|| content_hash(file.bytes()));
    Some(CodeFacts {
        build_id,
        content_hash,
        ..code(&file)
    })
}

/// How the code lies in the file.
fn code(file: &ElfFile) -> CodeFacts {
    let holds_code = |segment: &&Segment| segment.flags & PF_X != 0;
    CodeFacts {
        class: file.class,
        machine: file.machine,
        segments: file.segments.iter().filter(holds_code).copied().collect(),
        ..CodeFacts::default()
    }
}
