//! `rawstack import`.

use std::fs;
use std::iter;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_format::WriterOptions;
use rawstack_format::record::{Module, Segment};
use rawstack_symbolizer::debug_file::elf::PF_X;
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::import::{CodeFacts, PerfRecording};
use rawstack_symbolizer::text::clean;
use rawstack_symbolizer::watch;

use super::made;
use crate::args::ImportArgs;

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
        let code = |module: &Module| code(&locator, module);
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

/// How the code of a module lies in its file, where that is found.
fn code(locator: &Locator, module: &Module) -> Option<CodeFacts> {
    let found = watch::reading(iter::empty(), || locator.locate(module));
    let file = found.code()?;
    let holds_code = |segment: &&Segment| segment.flags & PF_X != 0;
    Some(CodeFacts {
        class: file.class,
        machine: file.machine,
        segments: file.segments.iter().filter(holds_code).copied().collect(),
    })
}
