//! `rawstack symbols --pack`: what names and unwinding need of an archive's modules, to be taken elsewhere.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_format::record::{Module, ModuleKind};
use rawstack_symbolizer::debug_file::locate::ModuleFiles;
use rawstack_symbolizer::output;
use rawstack_symbolizer::pack::{self, PackedFile, Store};
use rawstack_symbolizer::profile::Profile;
use rawstack_symbolizer::text::clean;
use rawstack_symbolizer::watch;

use super::finder::Finder;
use crate::args::names::SymbolsArgs;

/// Put the files of the modules of `profile` into the set that the options name.
pub(super) fn run(
    args: &SymbolsArgs,
    profile: &Profile,
    finder: &Finder<'_>,
    target: &Path,
) -> Result<ExitCode> {
    let modules = profile.tree.modules_alone();
    let bar = output::progress("looking", modules.len(), args.output.quiet);
    let symbolizer = finder.symbolizer(false)?;
    let files = symbolizer.locate(finder.locator(), &modules, &|| bar.inc(1));
    bar.finish_and_clear();
    let mut missing = Vec::new();
    let mut packed = Vec::new();
    for (module, files) in modules.iter().zip(&files) {
        let found = packed_files(module, files, args.pack_whole);
        if found.is_empty() && module.kind == ModuleKind::Elf {
            missing.push(clean(&module.path));
        }
        packed.extend(found);
    }
    packed.sort_by(|a, b| a.name.cmp(&b.name));
    packed.dedup_by(|a, b| a.name == b.name);
    if packed.is_empty() {
        bail!("failed to pack anything: no file of a module was found; run it where they are");
    }
    let shown = target.display();
    let write = || format!("failed to write {shown}");
    let mut store = Store::create(target).with_context(write)?;
    for file in &packed {
        store.add(file).with_context(write)?;
    }
    store.finish().with_context(write)?;
    if !args.output.quiet {
        for path in missing {
            eprintln!("rawstack: {path}: not packed: no file of it was found");
        }
        let sum = |size: &dyn Fn(&PackedFile<'_>) -> u64| packed.iter().map(size).sum::<u64>();
        let (bytes, whole) = (
            sum(&|file| file.bytes.len() as u64),
            sum(&|file| file.original),
        );
        let count = packed.len();
        eprintln!(
            "rawstack: {count} files in {bytes} bytes, whose originals have {whole}: {shown}"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn packed_files<'f>(module: &Module, files: &'f ModuleFiles, whole: bool) -> Vec<PackedFile<'f>> {
    watch::reading(files.paths(), || pack::of_module(module, files, whole))
}
