//! How much is known of a module on either side: what both know is what is compared.

use std::collections::BTreeMap;

use super::key::module_name;
use super::sides::{Columns, NAMES};
use crate::profile::Row;
use crate::profile::runs::RunCounts;
use crate::symbolized::SymbolizedProfile;

/// Difference of the parts without a name beyond which the names of a module are not compared, 0 to 1.
const UNNAMED_DIFFERENCE: f64 = 0.01;

/// Part of the cost of its side that a module must have to be taken as one with a module of another name.
const MAIN_PART: f64 = 0.05;

/// What frames of a module are compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// One thing: one side has no names.
    Whole,
    /// Functions as the symbol table has them: one side lacks debug information, so inlined functions belong to their
    /// callers.
    Symbols,
    /// Functions with those inlined into them.
    Inlined,
}

/// A module on both sides.
#[derive(Clone, Debug)]
pub struct ComparedModule {
    /// Its name without version.
    pub name: String,
    /// What its frames are compared as.
    pub resolution: Resolution,
    /// Whether both sides have the same build of it and no other.
    pub is_same: bool,
    /// What is to be told of it: which side knows less.
    pub note: Option<String>,
}

/// Modules by name, and which one a path is.
#[derive(Debug, Default)]
pub struct ComparedModules {
    modules: BTreeMap<String, ComparedModule>,
    /// The program of the new side under the name of the base's.
    aliases: BTreeMap<String, String>,
    /// For each module of the profile whether the new side has it.
    is_new: Vec<bool>,
}

#[derive(Default)]
struct Met {
    /// Modules of the profile.
    builds: Vec<(u32, [bool; 2])>,
    /// Weight of its frames by side, and that of those without a name.
    weights: [(f64, f64); 2],
}

impl ComparedModules {
    /// Look at all stacks of either side.
    pub fn of(
        profile: &SymbolizedProfile,
        counts: &RunCounts,
        columns: &Columns,
        event: u32,
    ) -> Self {
        let mut met: BTreeMap<String, Met> = BTreeMap::new();
        let names: Vec<String> = profile
            .modules
            .iter()
            .map(|module| module_name(&module.path))
            .collect();
        let mut of_module: Vec<[(f64, f64); 2]> = vec![Default::default(); profile.modules.len()];
        for (stack, weights) in weights_by_side(counts, columns, event) {
            let end = (stack.state, stack.kernel_cut);
            profile.each_located(stack.kernel, stack.user, end, &mut |frame| {
                let place = frame
                    .place
                    .and_then(|place| profile.places().get(place as usize));
                let module = place.and_then(|place| place.module);
                let Some(sums) = module.and_then(|module| of_module.get_mut(module as usize))
                else {
                    return;
                };
                let is_unnamed = profile.frame(frame.named).reason.is_some();
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    sum.0 += weight;
                    sum.1 += if is_unnamed { weight } else { 0.0 };
                }
            });
        }
        for ((number, name), sums) in (0u32..).zip(&names).zip(&of_module) {
            if sums.iter().all(|sum| sum.0 <= 0.0) {
                continue;
            }
            let entry = met.entry(name.clone()).or_default();
            entry.builds.push((number, sums.map(|sum| sum.0 > 0.0)));
            for (held, sum) in entry.weights.iter_mut().zip(sums) {
                held.0 += sum.0;
                held.1 += sum.1;
            }
        }
        let aliases = pair_renamed(&mut met);
        let compared = |(name, met): (String, Met)| {
            let module = compared(profile, name.clone(), &met);
            (name, module)
        };
        Self {
            modules: met.into_iter().map(compared).collect(),
            aliases,
            is_new: of_module.iter().map(|sums| sums[1].0 > 0.0).collect(),
        }
    }

    /// Whether the new side has module number `module` of the profile.
    pub fn is_new(&self, module: u32) -> bool {
        self.is_new
            .get(module as usize)
            .is_some_and(|is_new| *is_new)
    }

    /// The module with a path.
    pub fn get(&self, path: &str) -> Option<&ComparedModule> {
        self.modules.get(&self.name(path))
    }

    /// The name under which the module with a path is compared.
    pub fn name(&self, path: &str) -> String {
        let name = module_name(path);
        self.aliases.get(&name).cloned().unwrap_or(name)
    }

    /// What is to be told of them.
    pub fn notes(&self) -> Vec<String> {
        let renamed = self
            .aliases
            .iter()
            .map(|(new, base)| format!("{base} of BASE and {new} of NEW are taken as one module"));
        renamed
            .chain(
                self.modules
                    .values()
                    .filter_map(|module| module.note.clone()),
            )
            .collect()
    }
}

/// Take the heaviest module of either side that the other lacks as one: a program is often built under another name.
fn pair_renamed(met: &mut BTreeMap<String, Met>) -> BTreeMap<String, String> {
    let heaviest = |met: &BTreeMap<String, Met>, side: usize| {
        let all: f64 = met.values().map(|met| met.weights[side].0).sum();
        let alone = met
            .iter()
            .filter(|(name, met)| met.weights[1 - side].0 <= 0.0 && !name.starts_with('['));
        let heaviest = alone.max_by(|a, b| a.1.weights[side].0.total_cmp(&b.1.weights[side].0))?;
        (heaviest.1.weights[side].0 >= MAIN_PART * all).then(|| heaviest.0.clone())
    };
    let (Some(base), Some(new)) = (heaviest(met, 0), heaviest(met, 1)) else {
        return BTreeMap::new();
    };
    if let Some(of_new) = met.remove(&new)
        && let Some(of_base) = met.get_mut(&base)
    {
        of_base.builds.extend(of_new.builds);
        of_base.weights[1] = of_new.weights[1];
    }
    BTreeMap::from([(new, base)])
}

/// Stacks of an event with the weight that either side has in them.
pub(super) fn weights_by_side<'c>(
    counts: &'c RunCounts,
    columns: &'c Columns,
    event: u32,
) -> impl Iterator<Item = (&'c Row, [f64; 2])> {
    let groups = counts.cells.chunk_by(|a, b| a.stack == b.stack);
    groups.filter_map(move |cells| {
        let stack = counts.stacks.get(cells.first()?.stack as usize)?;
        let mut weights = [0.0; 2];
        for cell in cells {
            let column = columns.of_part.get(cell.part as usize).copied().flatten();
            if let Some(weight) = column.and_then(|column| weights.get_mut(columns.side(column))) {
                *weight += cell.weight as f64;
            }
        }
        (stack.event == event && weights.iter().any(|weight| *weight > 0.0))
            .then_some((stack, weights))
    })
}

fn compared(profile: &SymbolizedProfile, name: String, met: &Met) -> ComparedModule {
    let is_same = matches!(met.builds[..], [(_, [true, true])]);
    let on_side = |side: usize| {
        met.builds
            .iter()
            .filter(move |(_, sides)| sides[side])
            .map(|(module, _)| *module)
    };
    let levels = [0, 1].map(|side| on_side(side).map(|module| level(profile, module)).min());
    let unnamed = met
        .weights
        .map(|(all, unnamed)| if all > 0.0 { unnamed / all } else { 0.0 });
    let mut module = ComparedModule {
        name,
        resolution: Resolution::Inlined,
        is_same,
        note: None,
    };
    let [Some(base), Some(new)] = levels else {
        module.resolution = levels
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Resolution::Symbols);
        return module;
    };
    module.resolution = base.min(new);
    if is_same {
        return module;
    }
    let worse = |is_base: bool| NAMES[usize::from(!is_base)];
    if (unnamed[0] - unnamed[1]).abs() > UNNAMED_DIFFERENCE {
        module.resolution = Resolution::Whole;
        module.note = Some(format!(
            "{}: compared as a whole, since {} has no names for {:.0} % of it and {} for {:.0} %",
            module.name,
            NAMES[0],
            unnamed[0] * 100.0,
            NAMES[1],
            unnamed[1] * 100.0
        ));
    } else if base != new {
        module.note = Some(format!(
            "{}: compared without inlined functions, since {} has no debug information",
            module.name,
            worse(base < new)
        ));
    }
    module
}

/// What is known of one module.
fn level(profile: &SymbolizedProfile, module: u32) -> Resolution {
    let module = profile.modules.get(module as usize);
    let has_dwarf =
        module.is_some_and(|module| module.files.iter().any(|file| file.dwarf) && !module.damaged);
    if has_dwarf {
        Resolution::Inlined
    } else {
        Resolution::Symbols
    }
}
