//! `rawstack diff` and `rawstack calibrate`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_symbolizer::compare::config::{part, probability};
use rawstack_symbolizer::compare::functions::Apart;
use rawstack_symbolizer::compare::key::KeyOptions;
use rawstack_symbolizer::compare::page;
use rawstack_symbolizer::compare::{
    Basis, ComparedModules, Comparison, Functions, Input, NoiseFile, Settings, Verdict, compare,
    exposures, render,
};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Summary;
use rawstack_symbolizer::report::NameFilter;

use super::compared::{Compared, load};
use super::finder::Finder;
use super::select;
use crate::args::diff::{
    CalibrateArgs, CompareArgs, CostPer, DiffArgs, DiffBy, DiffFormat, DiffVerb, ExplainArgs,
    FailOn, Generics, JudgingArgs,
};

/// The file of thresholds that is read without being named.
const CONFIG: &str = "rawstack-diff.toml";

/// Compare, and say what comes of it.
pub(crate) fn run(args: &DiffArgs) -> Result<ExitCode> {
    match &args.verb {
        Some(DiffVerb::Explain(args)) => explain(args),
        None => diff(&args.compare),
    }
}

fn diff(args: &CompareArgs) -> Result<ExitCode> {
    let (comparison, functions) = Asked::of(args)?.comparison()?;
    let columns = output::columns(args.shown.output.output.as_deref());
    let mut out = output::open(args.shown.output.output.as_deref())?;
    let out = &mut *out;
    match args.layout() {
        DiffFormat::Text => render::write_text(&comparison, args.all, columns, out)?,
        DiffFormat::Markdown => render::write_markdown(&comparison, out)?,
        DiffFormat::Json => render::write_json(&comparison, out)?,
        DiffFormat::Html => page::write_page(&comparison, &functions, &args.title, out)?,
        DiffFormat::Junit => render::write_junit(&comparison, out)?,
        DiffFormat::Sarif => render::write_sarif(&comparison, out)?,
    }
    out.flush().context("failed to write the output")?;
    Ok(code(comparison.verdict, args.fail_on))
}

/// Nothing that cannot be relied on fails as a regression does.
fn code(verdict: Verdict, fail_on: FailOn) -> ExitCode {
    match (verdict, fail_on) {
        (Verdict::Regression, FailOn::Inconclusive | FailOn::Regression) => ExitCode::from(1),
        (Verdict::Inconclusive, FailOn::Inconclusive) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    }
}

fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    let asked = Asked::of(&args.compare)?;
    let (comparison, _) = asked.comparison()?;
    let by_line = Apart {
        by_line: true,
        ..asked.settings.apart
    };
    let (lines, _) = functions(&asked.compared, &asked.names, by_line)?;
    let mut text = Vec::new();
    if !render::write_explanation(&comparison, &lines, &args.function, &mut text)? {
        bail!(
            "failed to explain `{}`: no function that was judged has this in its name; --format json lists them",
            args.function.escape_debug()
        );
    }
    let mut out = output::open(args.compare.shown.output.output.as_deref())?;
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked for, and read for it.
struct Asked {
    settings: Settings,
    names: NameFilter,
    noise: Option<NoiseFile>,
    compared: Compared,
}

impl Asked {
    fn of(args: &CompareArgs) -> Result<Self> {
        let mut settings = settings(&args.judging, args.shown.output.quiet)?;
        settings.apart.by_line = args.by == DiffBy::Line;
        let filter = select::filter(&args.shown.filter)?;
        let names = select::name_filter(&args.shown.names)?;
        let noise = args.judging.noise.as_deref().map(noise).transpose()?;
        let [base, new] = [&args.base, &args.new].map(|list| {
            side(
                list.as_deref().unwrap_or_default(),
                args.shown.output.output.as_deref(),
            )
        });
        let files = [base?, new?];
        let whole = noise.is_some();
        let finder = Finder::new(&args.shown.symbols, args.shown.output.quiet)?;
        let compared = load(&files, &filter, whole, &finder)?;
        Ok(Self {
            settings,
            names,
            noise,
            compared,
        })
    }

    fn comparison(&self) -> Result<(Comparison, Functions)> {
        let compared = &self.compared;
        let columns = compared.sides.columns(&compared.counts);
        let (mut functions, notes) = functions(compared, &self.names, self.settings.apart)?;
        let input = Input {
            archives: &compared.named.archives,
            sides: &compared.sides,
            columns: &columns,
            event: &compared.event_name,
            unit: &compared.unit,
            noise: self.noise.as_ref(),
            notes,
        };
        let comparison = compare(&mut functions, input, &self.settings);
        Ok((comparison, functions))
    }
}

/// Functions of both sides, and what is to be told of their modules.
fn functions(
    compared: &Compared,
    names: &NameFilter,
    apart: Apart,
) -> Result<(Functions, Vec<String>)> {
    let Compared {
        named,
        counts,
        sides,
        event,
        ..
    } = compared;
    let columns = sides.columns(counts);
    let modules = ComparedModules::of(named, counts, &columns, *event);
    let functions = Functions::of(named, counts, &columns, *event, (apart, &modules, names))?;
    Ok((functions, modules.notes()))
}

/// The archives of one side.
fn side(list: &str, output: Option<&Path>) -> Result<Vec<PathBuf>> {
    let whole = Path::new(list);
    let parts: Vec<PathBuf> = match whole.exists() {
        true => vec![whole.to_owned()],
        false => list.split(',').map(PathBuf::from).collect(),
    };
    if parts.iter().any(|part| part == Path::new("-")) {
        bail!("failed to read standard input: archives may be read twice here; name files");
    }
    select::archives(&parts, output)
}

/// What the options, and the file of thresholds, say.
fn settings(args: &JudgingArgs, quiet: bool) -> Result<Settings> {
    let mut settings = Settings::default();
    let path = args.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    match fs::read_to_string(&path) {
        Ok(text) => {
            settings
                .read(&text)
                .with_context(|| format!("failed to read {}", path.display()))?;
            if args.config.is_none() && !quiet {
                eprintln!("rawstack: thresholds are those of {CONFIG}");
            }
        }
        Err(error) if args.config.is_none() && error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", path.display()));
        }
    }
    let strictness = &mut settings.strictness;
    strictness.margin.of_own = part("--margin", args.margin)?.unwrap_or(strictness.margin.of_own);
    strictness.margin.of_total =
        part("--margin-total", args.margin_total)?.unwrap_or(strictness.margin.of_total);
    strictness.q = probability("--q", args.q)?.unwrap_or(strictness.q);
    strictness.alpha = probability("--alpha", args.alpha)?.unwrap_or(strictness.alpha);
    settings.min_runs = args.min_runs.unwrap_or(settings.min_runs);
    settings.max_loss = part("--max-loss", args.max_loss)?.unwrap_or(settings.max_loss);
    settings.detect = part("--detect", args.detect)?.or(settings.detect);
    settings.basis = args.cost.map(basis);
    settings.inclusive = args.inclusive;
    settings.accept_renames = args.accept_renames;
    settings.apart = Apart {
        key: KeyOptions {
            erase_generics: args.generics == Generics::Erase,
            keep_numbers: false,
        },
        by_module: args.modules,
        by_line: false,
    };
    Ok(settings)
}

fn basis(cost: CostPer) -> Basis {
    match cost {
        CostPer::Work => Basis::Work,
        CostPer::Run => Basis::Run,
        CostPer::Ratio => Basis::Ratio,
        CostPer::Share => Basis::Share,
    }
}

fn noise(path: &Path) -> Result<NoiseFile> {
    let failed = || format!("failed to read {}", path.display());
    let text = fs::read_to_string(path).with_context(failed)?;
    NoiseFile::read(&text).with_context(failed)
}

/// Measure the noise of one build's runs, and write it down.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    let files = [
        select::archives(&args.files, args.output.output.as_deref())?,
        Vec::new(),
    ];
    let finder = Finder::new(&args.symbols, args.output.quiet)?;
    let compared = load(&files, &filter, true, &finder)?;
    let columns = compared.sides.columns(&compared.counts);
    let (functions, notes) = functions(&compared, &NameFilter::default(), Apart::default())?;
    let archives: &[Summary] = &compared.named.archives;
    let input = Input {
        archives,
        sides: &compared.sides,
        columns: &columns,
        event: &compared.event_name,
        unit: &compared.unit,
        noise: None,
        notes,
    };
    let settings = Settings {
        basis: args.cost.map(basis),
        ..Settings::default()
    };
    let (exposures, basis) = exposures(&functions, &input, &settings);
    let file = NoiseFile::measure(&functions, &input, &exposures, basis.name())
        .context("failed to calibrate")?;
    if !args.output.quiet {
        for reason in &compared.sides.reasons {
            eprintln!("rawstack: {reason}");
        }
    }
    let mut out = output::open(args.output.output.as_deref())?;
    serde_json::to_writer_pretty(&mut out, &file)?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}
