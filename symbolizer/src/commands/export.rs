//! `rawstack export`: archives → the formats of other tools, in one pass or in two.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use rawstack_symbolizer::export::firefox::Firefox;
use rawstack_symbolizer::export::folded::Folded;
use rawstack_symbolizer::export::lines::{CsvLines, JsonLines};
use rawstack_symbolizer::export::otlp::Otlp;
use rawstack_symbolizer::export::parquet::{Dataset, Options, Table};
use rawstack_symbolizer::export::perf_script::PerfScript;
use rawstack_symbolizer::export::perfetto::Perfetto;
use rawstack_symbolizer::export::pprof::Pprof;
use rawstack_symbolizer::export::speedscope::Speedscope;
use rawstack_symbolizer::export::{ExportSample, Exporter, Feed, Halves, Source, export_rows};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::{Adder, Apart};
use rawstack_symbolizer::profile::{Filter, Profile, load};
use rawstack_symbolizer::report::NameFilter;
use rawstack_symbolizer::symbolize::leave_raw;
use rawstack_symbolizer::symbolized::SymbolizedProfile;

use super::finder::{Finder, shared_with};
use super::select;
use crate::args::export::{ExportArgs, ExportFormat, ExportTable};

/// Write the file.
pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.shown.filter)?;
    let names = select::name_filter(&args.shown.names)?;
    let files = select::archives(&args.files, args.shown.output.output.as_deref())?;
    let samples = Samples {
        files: &files,
        filter: &filter,
        names: &names,
        finder: Finder::new(&args.shown.symbols, args.shown.output.quiet)?,
        raw: args.raw,
        min: args.min.unwrap_or(0.0),
    };
    let target = args.shown.output.output.as_deref();
    let chosen = exporter(args.format);
    let is_added_up = matches!(chosen, Some((_, kind)) if !kind.one_by_one);
    if args.min.is_some() && !is_added_up {
        bail!(
            "failed to export: --min is of formats that add samples up: folded, pprof, speedscope, otlp"
        );
    }
    let Some((mut exporter, kind)) = chosen else {
        let mut dataset = Dataset::new(dataset_options(args)?);
        samples.export(&mut dataset, false, &mut io::sink())?;
        return Ok(ExitCode::SUCCESS);
    };
    if !args.tables.is_empty() || args.service.is_some() {
        bail!("failed to export: --tables and --service are of --format parquet");
    }
    if kind.binary {
        output::refuse_terminal(target)?;
    }
    let mut out = output::open(target)?;
    if kind.compressed {
        // No time and no name in the header: the same archive gives the same bytes.
        let mut packed = GzBuilder::new().write(out, Compression::default());
        samples.run(&mut *exporter, kind, &mut packed)?;
        out = packed.finish().context("failed to write the output")?;
    } else {
        samples.run(&mut *exporter, kind, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// What is to become of a dataset.
fn dataset_options(args: &ExportArgs) -> Result<Options> {
    let folder = args.shown.output.output.clone();
    let Some(folder) = folder.filter(|folder| folder != Path::new("-")) else {
        bail!("failed to export: parquet is a folder of files; name one with -o");
    };
    if fs::metadata(&folder).is_ok_and(|held| !held.is_dir()) {
        bail!(
            "failed to write {}: it is no folder, and parquet is one; name another with -o",
            folder.display()
        );
    }
    if args.shown.names.hide.is_some() {
        bail!(
            "failed to export: --hide is of names, and stacks in parquet have none; hide in the query"
        );
    }
    if args.raw && args.tables.contains(&ExportTable::Symbols) {
        bail!("failed to export: there are no symbols with --raw; leave one of the two out");
    }
    let tables = args.tables.iter().map(|table| match table {
        ExportTable::Recordings => Table::Recordings,
        ExportTable::Events => Table::Events,
        ExportTable::Runs => Table::Runs,
        ExportTable::Modules => Table::Modules,
        ExportTable::Samples => Table::Samples,
        ExportTable::Stacks => Table::Stacks,
        ExportTable::Frames => Table::Frames,
        ExportTable::Symbols => Table::Symbols,
    });
    Ok(Options {
        folder,
        tables: match args.tables[..] {
            [] => Table::ALL.to_vec(),
            _ => tables.collect(),
        },
        service: args.service.clone(),
    })
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
    /// With the addresses that code had in its processes.
    addresses: bool,
    /// Where samples are added up: what the format tells of threads.
    apart: Apart,
}

/// What writes a format into one file; none for one that is a folder.
fn exporter(format: ExportFormat) -> Option<(Box<dyn Exporter>, Kind)> {
    let added_up = Kind {
        apart: Apart::Facts,
        ..Kind::default()
    };
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
    let (exporter, kind): (Box<dyn Exporter>, _) = match format {
        ExportFormat::Folded => {
            let kind = Kind {
                apart: Apart::Comms,
                ..added_up
            };
            (Box::<Folded>::default(), kind)
        }
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
        ExportFormat::PerfScript => {
            let kind = Kind {
                addresses: true,
                ..text
            };
            (Box::<PerfScript>::default(), kind)
        }
        ExportFormat::Parquet => return None,
    };
    Some((exporter, kind))
}

/// Samples to export: where they are and which of them.
pub(super) struct Samples<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) filter: &'a Filter,
    pub(super) names: &'a NameFilter,
    pub(super) finder: Finder<'a>,
    /// Look for no names.
    pub(super) raw: bool,
    /// Cut off branches below this share of the total, in per cent, where samples are added up.
    pub(super) min: f64,
}

impl Samples<'_> {
    fn run(&self, exporter: &mut dyn Exporter, kind: Kind, out: &mut dyn Write) -> Result<()> {
        if kind.one_by_one {
            return self.export(exporter, kind.addresses, out);
        }
        let mut profile = select::load(self.files, self.filter, kind.apart, &self.finder)?;
        select::keep_one_event(&mut profile, self.filter, self.finder.quiet);
        let named = self.name(profile)?;
        Ok(export_rows(&named, self.names, self.min, exporter, out)?)
    }

    fn name(&self, profile: Profile) -> Result<SymbolizedProfile> {
        if self.raw {
            return Ok(leave_raw(profile));
        }
        self.finder.name(profile)
    }

    /// Two passes: the first finds the distinct addresses to name, the second gives the samples one by one.
    pub(super) fn export(
        &self,
        exporter: &mut dyn Exporter,
        addresses: bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        if self.files.iter().any(|file| file == Path::new("-")) {
            bail!("failed to read the archive twice from standard input: give it as a file");
        }
        let mut first = self.finder.shared(addresses);
        for file in self.files {
            load::read(&mut first, file, self.filter, &mut |_, _, _| Ok(()))?;
        }
        select::check_events(self.filter, &first.events)?;
        // With the same files, the same archives give the same numbers each time they are read.
        let unwinding = first.unwinding.take();
        let named = self.name(Adder::default().finish(first))?;
        let source = Source {
            profile: &named,
            unit: "samples",
        };
        exporter.start(&source, out)?;
        let mut feed = Feed::new(source, self.names);
        let mut again = shared_with(addresses, unwinding);
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
                    halves,
                    row: Some(&sample.row),
                };
                feed.give(exporter, one, out)
            })?;
        }
        Ok(exporter.finish(&source, out)?)
    }
}
