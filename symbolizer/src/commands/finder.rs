//! Where a command finds files and names. Made once for each command: its folders are read and its servers asked once,
//! for unwinding and for naming.

use std::sync::Arc;

use anyhow::Result;
use indicatif::HumanBytes;
use rawstack_format::record::Module;
use rawstack_symbolizer::cache::Cache;
use rawstack_symbolizer::copied::{Stacks, Unwinding};
use rawstack_symbolizer::debug_file::debuginfod::{Client, ClientError, Settings, Step};
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::{ModuleId, Profile, StackTree, load};
use rawstack_symbolizer::report::symbols::missing_pieces;
use rawstack_symbolizer::report::unwound;
use rawstack_symbolizer::resolve::{ResolveOptions, Symbolizer};
use rawstack_symbolizer::symbolize::symbolize;
use rawstack_symbolizer::symbolized::SymbolizedProfile;
use rawstack_symbolizer::text::clean;

use crate::args::shared::{StackChoice, SymbolArgs};

/// Finds files and names, as the options say.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    args: &'a SymbolArgs,
    locator: Arc<Locator>,
    /// Say nothing on standard error.
    pub(super) quiet: bool,
}

impl<'a> Finder<'a> {
    /// A finder that asks servers where the options want it.
    pub(super) fn new(args: &'a SymbolArgs, quiet: bool) -> Result<Self> {
        Self::asking(args, false, quiet)
    }

    /// As [`new`](Self::new), and with `asks` one that asks servers in any case.
    pub(super) fn asking(args: &'a SymbolArgs, asks: bool, quiet: bool) -> Result<Self> {
        let locator = locator(args, asks || args.debuginfod, quiet)?;
        Ok(Self {
            args,
            locator: Arc::new(locator),
            quiet,
        })
    }

    /// What finds files.
    pub(super) fn locator(&self) -> &Locator {
        &self.locator
    }

    /// What resolves addresses; with `origins` it tells functions of one name apart.
    pub(super) fn symbolizer(&self, origins: bool) -> Result<Symbolizer> {
        let options = ResolveOptions {
            dwarf: !self.args.symbols_only,
            origins,
        };
        let cache = Cache::of_user().filter(|_| !self.args.no_cache);
        Ok(Symbolizer::new(options)?.with_cache(cache))
    }

    /// What unwinds copies of stacks, where the options want that.
    pub(super) fn unwinding(&self) -> Option<Unwinding> {
        let stacks = match self.args.stacks {
            StackChoice::Auto => Stacks::Auto,
            StackChoice::FramePointers => return None,
            StackChoice::Copies => Stacks::Copies,
        };
        let locator = Arc::clone(&self.locator);
        let find = Arc::new(move |module: &Module| locator.locate(module));
        Some(Unwinding::new(stacks, find))
    }

    /// What archives are read into: with `addresses` the same code at two addresses is two frames. Copies of stacks are
    /// unwound as the options say.
    pub(super) fn shared(&self, addresses: bool) -> load::Shared {
        shared_with(addresses, self.unwinding())
    }

    /// Give a profile names; says on standard error what has none, and what an archive lost.
    pub(super) fn name(&self, profile: Profile) -> Result<SymbolizedProfile> {
        Ok(self.name_by(&self.symbolizer(false)?, profile, self.quiet))
    }

    /// As [`name`](Self::name), by `symbolizer`.
    pub(super) fn name_by(
        &self,
        symbolizer: &Symbolizer,
        profile: Profile,
        quiet: bool,
    ) -> SymbolizedProfile {
        let bar = output::progress("resolving", profile.tree.modules().len(), quiet);
        let step = |resolved: bool| bar.inc(u64::from(resolved));
        let inlines = !self.args.no_inlines;
        let named = symbolize(profile, &self.locator, symbolizer, inlines, &step);
        bar.finish_and_clear();
        if !quiet {
            tell(&named);
        }
        named
    }
}

/// As [`Finder::shared`], with what unwinds already.
pub(super) fn shared_with(addresses: bool, unwinding: Option<Unwinding>) -> load::Shared {
    load::Shared {
        tree: StackTree::new(addresses),
        unwinding,
        ..load::Shared::default()
    }
}

/// Where to look, as the options say; with `ask` servers too.
fn locator(args: &SymbolArgs, ask: bool, quiet: bool) -> Result<Locator> {
    let locator = Locator::new(Places::of_machine(args.symbol_dir.clone()));
    if !ask {
        return Ok(locator);
    }
    let settings = Settings::from_environment().ok_or(ClientError::NoServer)?;
    if !quiet {
        for refused in &settings.refused {
            eprintln!("rawstack: DEBUGINFOD_URLS: not asked: {}", clean(refused));
        }
    }
    let bar = output::transfers(quiet);
    let verbose = settings.verbose && !quiet;
    let watch = move |url: &str, step: Step| match step {
        Step::Coming(bytes) => {
            bar.set_message(format!("{} {}", HumanBytes(bytes), clean(url)));
            bar.tick();
        }
        Step::Ended(how) if verbose => {
            bar.suspend(|| eprintln!("rawstack: {}: {how}", clean(url)));
        }
        _ => {}
    };
    Ok(locator.with_client(Client::new(settings, Box::new(watch))?))
}

/// Say what has no name, and what an archive lost.
fn tell(named: &SymbolizedProfile) {
    for archive in &named.archives {
        let problems = archive.problems();
        if let Some(first) = problems.first() {
            let more = problems.len() - 1;
            let more = if more > 0 {
                format!(" (and {more} more)")
            } else {
                String::new()
            };
            eprintln!(
                "rawstack: {} is not whole: {first}{more}; see `rawstack verify`",
                clean(&archive.path)
            );
        }
    }
    tell_ends(named);
    for module in &named.modules {
        if let Some(damage) = module.damage {
            eprintln!("rawstack: {}: {damage}; symbols stand in", module.path);
        }
        for line in missing_pieces(&module.missing) {
            eprintln!("rawstack: {}: missing {line}", module.path);
        }
    }
    for (_, module) in named.unresolved() {
        let missing = module.nameless();
        let Some((reason, _)) = module.unresolved.iter().max_by_key(|(_, count)| *count) else {
            continue;
        };
        let (path, frames) = (&module.path, module.frames);
        eprintln!(
            "rawstack: {path}: {missing} of {frames} addresses have no name: {}",
            reason.explanation()
        );
    }
}

/// Say how many copied stacks were not unwound to their outermost frame.
fn tell_ends(named: &SymbolizedProfile) {
    let path = |id: ModuleId| {
        let module = named.modules.get(id.0 as usize);
        module.map_or_else(String::new, |module| module.path.clone())
    };
    for archive in &named.archives {
        if let Some(line) = unwound::line(&archive.ends, &path) {
            eprintln!("rawstack: {}: {line}", clean(&archive.path));
        }
    }
}
