//! Functions of both sides, each once, with what their runs took: by themselves, and with what they called.

use foldhash::HashMap;

use super::comparison::shown_name;
use super::key::{KeyOptions, without_unique};
use super::members::Members;
use super::modules::ComparedModules;
use super::sides::Columns;
use crate::error::{Error, Result};
use crate::profile::runs::{RunCell, RunCounts};
use crate::report::NameFilter;
use crate::symbolized::SymbolizedProfile;

/// Functions times runs: a quarter of a gigabyte for their weights, and about as much again to judge them.
///
/// An archive says itself how many runs it has.
const MOST_NUMBERS: usize = 1 << 24;

/// What makes frames one function, or one line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey {
    /// Canonical name.
    pub name: String,
    /// Module, where functions of different modules are different functions.
    pub module: Option<String>,
    /// Whether it is in the kernel.
    pub kernel: bool,
    /// Which function of that name, where there are several.
    pub which: u32,
    /// Line, counted from the declaration, where lines are told apart and it is known.
    pub line: Option<i64>,
}

/// What is known of a function besides its costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionFacts {
    /// A module that it is in: the first by name.
    pub module: String,
    /// The source file, where all of its frames agree.
    pub file: Option<String>,
    /// Whether it stands for what has no name.
    pub is_unnamed: bool,
    /// Where it is declared, `file:line`, if others have its name; on the new side, where it is there.
    pub declared: Option<String>,
}

impl FunctionFacts {
    /// Take over what is known of more frames of the function.
    pub(super) fn join(&mut self, more: Self) {
        if more.module < self.module {
            self.module = more.module;
        }
        if self.file != more.file {
            self.file = None;
        }
        self.is_unnamed &= more.is_unnamed;
    }
}

/// How functions are told apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Apart {
    /// What of names counts.
    pub key: KeyOptions,
    /// Functions of different modules are different ones.
    pub by_module: bool,
    /// Lines of a function are told apart.
    pub by_line: bool,
}

/// Functions, what their runs took, and the stacks that this comes from.
#[derive(Debug, Default)]
pub struct Functions {
    /// Keys, sorted.
    pub keys: Vec<FunctionKey>,
    /// Facts of each.
    pub facts: Vec<FunctionFacts>,
    /// Number of columns.
    pub width: usize,
    /// The first column of the new side.
    pub first_new: usize,
    /// Weight of each function itself, in each column.
    pub own: Vec<f64>,
    /// Weight of each function with what it called, recursion counted once.
    pub total: Vec<f64>,
    /// Sum of the squares of the weights of each function itself.
    pub own_squares: Vec<f64>,
    /// The same with what it called.
    pub total_squares: Vec<f64>,
    /// Weight of all samples, in each column.
    pub all: Vec<f64>,
    /// Sum of the squares of all weights.
    pub all_squares: f64,
    /// Samples of each column.
    pub samples: Vec<u64>,
    /// Stacks as functions, leaf first, with their weights by column.
    pub stacks: Vec<FunctionStack>,
}

/// A stack as functions.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionStack {
    /// Functions, leaf first; inlined ones where both sides know them.
    pub functions: Box<[u32]>,
    /// Columns with weight in them: column, weight, sum of the squares.
    pub weights: Box<[(u32, f64, f64)]>,
}

impl Functions {
    /// Count the samples of event `event`.
    pub fn of(
        profile: &SymbolizedProfile,
        counts: &RunCounts,
        columns: &Columns,
        event: u32,
        (apart, modules, names): (Apart, &ComparedModules, &NameFilter),
    ) -> Result<Self> {
        let members = Members::of(profile, (counts, columns, event), apart, modules);
        let width = columns.len();
        if members.keys.len().saturating_mul(width) > MOST_NUMBERS {
            return Err(Error::TooLarge {
                functions: members.keys.len(),
                runs: width,
            });
        }
        let mut functions = Self {
            width,
            first_new: columns.first_new,
            samples: vec![0; width],
            ..Self::default()
        };
        let selected = names.of(profile);
        let mut shown = Vec::new();
        for cells in counts.cells.chunk_by(|a, b| a.stack == b.stack) {
            let stack = cells
                .first()
                .and_then(|cell| counts.stacks.get(cell.stack as usize));
            let Some(stack) = stack.filter(|stack| stack.event == event) else {
                continue;
            };
            shown.clear();
            let end = (stack.state, stack.kernel_cut);
            profile.each_located(stack.kernel, stack.user, end, &mut |frame| {
                shown.push(frame)
            });
            if !selected.choose(&mut shown) {
                continue;
            }
            let weights = functions.weights(cells, columns);
            if weights.is_empty() {
                continue;
            }
            let frames = shown.iter().filter_map(|frame| members.function(frame));
            functions.stacks.push(FunctionStack {
                functions: frames.collect(),
                weights,
            });
        }
        (functions.keys, functions.facts) = (members.keys, members.facts);
        functions.join_unique();
        functions.add_up();
        Ok(functions)
    }

    /// Weights by column of one stack's cells.
    fn weights(&mut self, cells: &[RunCell], columns: &Columns) -> Box<[(u32, f64, f64)]> {
        let mut weights: Vec<(u32, f64, f64)> = Vec::new();
        for cell in cells {
            let Some(column) = columns.of_part.get(cell.part as usize).copied().flatten() else {
                continue;
            };
            if let Some(samples) = self.samples.get_mut(column) {
                *samples += cell.samples;
            }
            weights.push((
                u32::try_from(column).unwrap_or(u32::MAX),
                cell.weight as f64,
                cell.squares,
            ));
        }
        weights.sort_unstable_by_key(|weight| weight.0);
        weights.into()
    }

    /// Join functions that differ in the number alone that sets apart one name in several files, where they are on
    /// one side each and of one file.
    fn join_unique(&mut self) {
        self.add_up();
        let is_on = |function: usize| self.is_on_sides(function);
        let mut groups: HashMap<(&str, Option<&str>, bool), Vec<usize>> = HashMap::default();
        for (number, (key, facts)) in self.keys.iter().zip(&self.facts).enumerate() {
            if let Some(stem) = without_unique(&key.name) {
                let file = facts
                    .file
                    .as_deref()
                    .map(|file| file.rsplit('/').next().unwrap_or(file));
                groups
                    .entry((stem, file, key.kernel))
                    .or_default()
                    .push(number);
            }
        }
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for group in groups.into_values() {
            if let [one, other] = group[..]
                && matches!(
                    (is_on(one), is_on(other)),
                    ([true, false], [false, true]) | ([false, true], [true, false])
                )
            {
                let number = |function: usize| u32::try_from(function).unwrap_or(u32::MAX);
                joined.push((number(other), number(one)));
            }
        }
        joined.sort_unstable();
        self.join(&joined);
    }

    /// Count functions as others: of each pair the first as the second.
    pub fn join(&mut self, pairs: &[(u32, u32)]) {
        if pairs.is_empty() {
            return;
        }
        let becomes: HashMap<u32, u32> = pairs.iter().copied().collect();
        for stack in &mut self.stacks {
            for function in &mut stack.functions {
                *function = becomes.get(function).copied().unwrap_or(*function);
            }
        }
        self.add_up();
    }

    /// Add the stacks up.
    pub(super) fn add_up(&mut self) {
        let (functions, width) = (self.keys.len(), self.width);
        (self.own, self.total) = (vec![0.0; functions * width], vec![0.0; functions * width]);
        (self.own_squares, self.total_squares) = (vec![0.0; functions], vec![0.0; functions]);
        (self.all, self.all_squares) = (vec![0.0; width], 0.0);
        let mut last_seen = vec![0u32; functions];
        for (number, stack) in (1u32..).zip(&self.stacks) {
            let squares: f64 = stack.weights.iter().map(|weight| weight.2).sum();
            self.all_squares += squares;
            for &(column, weight, _) in &stack.weights {
                add(&mut self.all, column as usize, weight);
            }
            for (depth, &function) in stack.functions.iter().enumerate() {
                let function = function as usize;
                let Some(seen) = last_seen.get_mut(function) else {
                    continue;
                };
                let is_first = *seen != number;
                *seen = number;
                let row = function * width;
                if depth == 0 {
                    add(&mut self.own_squares, function, squares);
                    stack
                        .weights
                        .iter()
                        .for_each(|weight| add(&mut self.own, row + weight.0 as usize, weight.1));
                }
                if is_first {
                    add(&mut self.total_squares, function, squares);
                    stack
                        .weights
                        .iter()
                        .for_each(|weight| add(&mut self.total, row + weight.0 as usize, weight.1));
                }
            }
        }
    }

    /// Weights of a function in each column, of itself or with what it called.
    pub fn row(&self, function: usize, with_callees: bool) -> &[f64] {
        let all = if with_callees { &self.total } else { &self.own };
        all.get(function * self.width..(function + 1) * self.width)
            .unwrap_or_default()
    }

    /// Name of a function, with what tells it from others of that name.
    pub fn shown(&self, function: usize) -> String {
        let declared = self
            .facts
            .get(function)
            .and_then(|facts| facts.declared.as_deref());
        self.keys
            .get(function)
            .map_or_else(String::new, |key| shown_name(&key.name, key.line, declared))
    }

    /// Whether a function is met on either side.
    pub fn is_on_sides(&self, function: usize) -> [bool; 2] {
        let row = self.row(function, true);
        let (base, new) = row.split_at(self.first_new.min(row.len()));
        [base, new].map(|side| side.iter().any(|weight| *weight > 0.0))
    }
}

fn add(sums: &mut [f64], place: usize, weight: f64) {
    if let Some(sum) = sums.get_mut(place) {
        *sum += weight;
    }
}
