//! `rawstack symbolize`: names for bare numbers.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_format::id::{BuildId, FileOffset};
use rawstack_format::record::{Module, Segment};
use rawstack_symbolizer::debug_file::elf::{ElfFile, PF_X};
use rawstack_symbolizer::debug_file::locate::{Locator, ModuleFiles};
use rawstack_symbolizer::export::symbolized::{NamedNumber, NumberWriter};
use rawstack_symbolizer::output;
use rawstack_symbolizer::report::symbols::missing_pieces;
use rawstack_symbolizer::resolve::file_offset::{Svma, to_offset, to_svma};
use rawstack_symbolizer::resolve::{Answered, KernelSymbolTable, Query, Symbolizer, Symbols};
use rawstack_symbolizer::text::clean;

use super::finder::Finder;
use super::numbers;
use crate::args::names::{NumberFormat, SymbolizeArgs};

/// Name the numbers.
pub(crate) fn run(args: &SymbolizeArgs) -> Result<ExitCode> {
    let finder = Finder::new(&args.symbols, args.output.quiet)?;
    let (module, files) = find_module(args, finder.locator())?;
    let mut out = output::open(args.output.output.as_deref())?;
    let mut namer = Namer {
        args,
        module,
        files,
        symbolizer: finder.symbolizer(false)?,
        told: Vec::new(),
    };
    let mut name = |numbers: &[u64]| {
        namer.name(numbers, &mut *out)?;
        // Whoever asks through a pipe waits for the answer.
        out.flush().context("failed to write the output")
    };
    if args.numbers.is_empty() {
        let batches = numbers::from_standard_input()?;
        while batches.next(&mut name)? {}
    } else {
        let given = args.numbers.iter().map(|text| numbers::parse(text));
        name(&given.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The module that the options name, and its files.
fn find_module(args: &SymbolizeArgs, locator: &Locator) -> Result<(Module, ModuleFiles)> {
    if let Some(path) = &args.file {
        return given_file(path, locator);
    }
    let text = args.build_id.as_deref().unwrap_or_default();
    let build_id = BuildId::from_hex(text).with_context(|| {
        format!(
            "failed to read --build-id `{}`: give hexadecimal digits",
            text.escape_debug()
        )
    })?;
    let mut module = Module {
        build_id: Some(build_id),
        page_size: 4096,
        ..Module::default()
    };
    let files = locator.locate(&module);
    if files.files.is_empty() {
        bail!("failed to find a file with build ID {text}: name a folder with --symbol-dir");
    }
    if args.offsets && files.code().is_none() {
        bail!(
            "failed to place offsets in build ID {text}: only its debug file was found, which has no segment table; name a folder with the binary with --symbol-dir, or give --addresses"
        );
    }
    if let Some((_, first)) = files.files.first() {
        module.path = first.path.display().to_string();
    }
    if let Some(code) = files.code() {
        module.segments.clone_from(&code.segments);
    }
    Ok((module, files))
}

fn given_file(path: &Path, locator: &Locator) -> Result<(Module, ModuleFiles)> {
    let file = ElfFile::open(path)?;
    let module = Module {
        build_id: file.build_id.clone(),
        class: file.class,
        machine: file.machine,
        page_size: 4096,
        path: path.display().to_string(),
        segments: file.segments.clone(),
        ..Module::default()
    };
    let files = locator.complete(&module, ModuleFiles::given(file));
    Ok((module, files))
}

/// Names numbers of one module.
struct Namer<'a> {
    args: &'a SymbolizeArgs,
    module: Module,
    files: ModuleFiles,
    symbolizer: Symbolizer,
    /// What was told of damage and missing pieces.
    told: Vec<String>,
}

impl Namer<'_> {
    /// Resolve the numbers together and write each.
    fn name(&mut self, numbers: &[u64], out: &mut dyn Write) -> Result<()> {
        let mut distinct: Vec<FileOffset> = numbers.iter().map(|&n| FileOffset(n)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let (symbols, answered) = self.resolve(&distinct);
        self.tell_missing(&answered);
        let inlines = !self.args.symbols.no_inlines;
        let writer = match self.args.layout() {
            NumberFormat::Json => NumberWriter::json(&symbols, inlines, &self.module),
            NumberFormat::Text => NumberWriter::text(&symbols, inlines),
            NumberFormat::Addr2line => NumberWriter::addr2line(&symbols, inlines),
        };
        let render = |numbers: &[u64]| {
            let mut lines = Vec::new();
            for &number in numbers {
                let place = distinct.binary_search(&FileOffset(number)).ok();
                let Some(answer) = place.and_then(|place| answered.answers.get(place)) else {
                    continue;
                };
                let (offset, address) = both(self.args, &self.module, number);
                let named = NamedNumber {
                    number,
                    offset,
                    address,
                    answer,
                };
                writer.write(&named, &mut lines);
            }
            lines
        };
        output::write_in_order(numbers, &render, out).context("failed to write the output")
    }

    fn resolve(&self, offsets: &[FileOffset]) -> (Symbols, Answered) {
        let mut module = self.module.clone();
        if !self.args.offsets {
            // Addresses need no segments: one that maps all of them to themselves keeps a debug file's lie about its
            // offsets out.
            module.segments = vec![Segment {
                file_size: u64::MAX,
                flags: PF_X,
                ..Segment::default()
            }];
        }
        let query = [Query {
            module: &module,
            files: &self.files,
            offsets,
            kernel: &KernelSymbolTable::default(),
        }];
        let bar = output::progress("resolving", query.len(), self.args.output.quiet);
        let (symbols, answered) = self.symbolizer.resolve(&query, &|| bar.inc(1));
        bar.finish_and_clear();
        (symbols, answered.into_iter().next().unwrap_or_default())
    }

    /// Say on standard error what is damaged or missing, each thing once.
    fn tell_missing(&mut self, answered: &Answered) {
        let damage = answered
            .damage
            .map(|damage| format!("{damage}; symbols stand in"));
        let missing = missing_pieces(&answered.missing).into_iter();
        let missing = missing.map(|line| format!("missing {line}"));
        for line in damage.into_iter().chain(missing) {
            if !self.args.output.quiet && !self.told.contains(&line) {
                eprintln!("rawstack: {}: {line}", clean(&self.module.path));
                self.told.push(line);
            }
        }
    }
}

/// A number as offset and as address, where the module's segments tell.
fn both(args: &SymbolizeArgs, module: &Module, number: u64) -> (Option<u64>, Option<u64>) {
    if args.offsets {
        let address = to_svma(&module.segments, FileOffset(number), module.page_size);
        (Some(number), address.map(|svma| svma.0))
    } else {
        let offset = to_offset(&module.segments, Svma(number));
        (offset.map(|offset| offset.0), Some(number))
    }
}
