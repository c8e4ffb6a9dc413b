//! `rawstack export`: archives → the formats of other tools, in one pass or in two.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use rawstack_symbolizer::export::firefox::Firefox;
use rawstack_symbolizer::export::folded::Folded;
use rawstack_symbolizer::export::lines::{CsvLines, JsonLines};
use rawstack_symbolizer::export::otlp::Otlp;
use rawstack_symbolizer::export::perf_script::PerfScript;
use rawstack_symbolizer::export::perfetto::Perfetto;
use rawstack_symbolizer::export::pprof::Pprof;
use rawstack_symbolizer::export::speedscope::Speedscope;
use rawstack_symbolizer::export::{ExportSample, Exporter, Feed, Halves, Source, export_rows};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::{Adder, Apart};
use rawstack_symbolizer::profile::{Filter, Profile, StackTree, load};
use rawstack_symbolizer::report::NameFilter;
use rawstack_symbolizer::symbolize::leave_raw;
use rawstack_symbolizer::symbolized::SymbolizedProfile;

use super::select;
use crate::args::{ExportArgs, ExportFormat, SymbolArgs};

/// Write the file.
pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    let names = select::name_filter(&args.names)?;
    let files = select::archives(&args.files, args.output.output.as_deref())?;
    let samples = Samples {
        files: &files,
        filter: &filter,
        names: &names,
        symbols: &args.symbols,
        raw: args.raw,
        quiet: args.output.quiet,
    };
    let (mut exporter, kind) = exporter(args.format);
    let target = args.output.output.as_deref();
    if kind.binary {
        output::refuse_terminal(target)?;
    }
    let mut out = output::open(target)?;
    if kind.compressed {
        // No time and no name in the header: the same archive gives the same bytes.
        let mut packed = GzBuilder::new().write(out, Compression::default());
        samples.run(&mut *exporter, kind.one_by_one, &mut packed)?;
        out = packed.finish().context("failed to write the output")?;
    } else {
        samples.run(&mut *exporter, kind.one_by_one, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// How a format is written.
#[derive(Clone, Copy, Default)]
struct Kind {
    /// Each sample by itself, not added up.
    one_by_one: bool,
    /// With gzip around it.
    compressed: bool,
    /// Nothing that a terminal could show.
    binary: bool,
}

fn exporter(format: ExportFormat) -> (Box<dyn Exporter>, Kind) {
    let added_up = Kind::default();
    let text = Kind {
        one_by_one: true,
        ..added_up
    };
    let binary = Kind {
        binary: true,
        ..added_up
    };
    let packed = Kind {
        compressed: true,
        ..binary
    };
    match format {
        ExportFormat::Folded => (Box::<Folded>::default(), added_up),
        ExportFormat::Pprof => (Box::<Pprof>::default(), packed),
        ExportFormat::Speedscope => (Box::<Speedscope>::default(), added_up),
        ExportFormat::Otlp => (Box::<Otlp>::default(), binary),
        ExportFormat::Perfetto => {
            let kind = Kind {
                one_by_one: true,
                ..binary
            };
            (Box::<Perfetto>::default(), kind)
        }
        ExportFormat::Firefox => {
            let kind = Kind {
                one_by_one: true,
                ..packed
            };
            (Box::<Firefox>::default(), kind)
        }
        ExportFormat::Json => (Box::<JsonLines>::default(), text),
        ExportFormat::Csv => (Box::<CsvLines>::default(), text),
        ExportFormat::PerfScript => (Box::<PerfScript>::default(), text),
    }
}

/// Samples to export: where they are and which of them.
pub(super) struct Samples<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) filter: &'a Filter,
    pub(super) names: &'a NameFilter,
    pub(super) symbols: &'a SymbolArgs,
    /// Look for no names.
    pub(super) raw: bool,
    pub(super) quiet: bool,
}

/// Tables of a tree that keeps each address.
pub(super) fn shared() -> load::Shared {
    load::Shared {
        tree: StackTree::new(true),
        ..load::Shared::default()
    }
}

impl Samples<'_> {
    fn run(
        &self,
        exporter: &mut dyn Exporter,
        one_by_one: bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        if one_by_one {
            return self.export(exporter, out);
        }
        let mut profile = select::load(self.files, self.filter, Apart::Facts, self.quiet)?;
        select::keep_one_event(&mut profile, self.filter, self.quiet);
        let named = self.name(profile)?;
        Ok(export_rows(&named, self.names, exporter, out)?)
    }

    fn name(&self, profile: Profile) -> Result<SymbolizedProfile> {
        if self.raw {
            return Ok(leave_raw(profile));
        }
        select::name(profile, self.symbols, self.quiet)
    }

    /// Two passes: the first finds the distinct addresses to name, the second gives the samples one by one.
    pub(super) fn export(&self, exporter: &mut dyn Exporter, out: &mut dyn Write) -> Result<()> {
        if self.files.iter().any(|file| file == Path::new("-")) {
            bail!("failed to read the archive twice from standard input: give it as a file");
        }
        let mut first = shared();
        for file in self.files {
            load::read(&mut first, file, self.filter, &mut |_, _, _| Ok(()))?;
        }
        select::check_events(self.filter, &first.events)?;
        let named = self.name(Adder::default().finish(first))?;
        let source = Source {
            profile: &named,
            unit: "samples",
        };
        exporter.start(&source, out)?;
        let mut feed = Feed::new(source, self.names);
        // The same archives give the same numbers each time they are read.
        let mut again = shared();
        for file in self.files {
            load::read(&mut again, file, self.filter, &mut |_, sample, event| {
                let (kernel, kernel_cut) = sample.kernel_half(self.filter.no_kernel);
                let halves = Halves {
                    kernel,
                    user: sample.user,
                    end: (sample.row.state, kernel_cut),
                };
                let one = ExportSample {
                    thread: sample.thread,
                    event,
                    weight: sample.row.weight,
                    samples: 1,
                    stack: &[],
                    row: Some(&sample.row),
                };
                feed.give(exporter, halves, one, out)
            })?;
        }
        Ok(exporter.finish(&source, out)?)
    }
}
