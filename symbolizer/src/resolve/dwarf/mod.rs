//! DWARF 2–5: which functions, inlined ones among them, and which source line an address belongs to.
//!
//! This is a batch resolver: it knows all wanted addresses of a module before it starts. They are placed into units
//! ([`units`]), each needed unit is visited once ([`mod@visit`]) and dropped; nothing is kept but the answers. A visit is
//! one pass over the unit's entries ([`walk`]) and one over its line program ([`program`]); names are looked up for
//! what contains a wanted address only ([`names`]). Nothing recurses.

mod bytes;
mod cursor;
mod files;
mod lambdas;
mod limits;
mod names;
mod plan;
mod program;
mod sections;
mod split;
mod tables;
mod text;
mod units;
mod visit;
mod walk;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use gimli::{EndianSlice, RunTimeEndian};
use rayon::prelude::*;

use super::file_offset::Svma;
use crate::guard::guarded;
pub(super) use sections::DwarfSections;
pub(super) use split::Companions;
use units::Units;
use visit::{UnitAnswers, visit};

/// Reader over a section's bytes.
type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// Units that may claim one address; more are nonsense.
const MAX_CLAIMS: usize = 4;

/// Bytes of entries that are visited in one go, and then let go of.
const BATCH: usize = 1 << 20;

/// Bounds of the work on one module.
#[derive(Debug)]
pub(super) struct Budget {
    deadline: Instant,
    spent: AtomicBool,
}

impl Budget {
    /// A budget that ends after `time`.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            deadline: Instant::now() + time,
            spent: AtomicBool::new(false),
        }
    }

    /// Whether the time is over; asked every few thousand steps.
    fn is_spent(&self) -> bool {
        if Instant::now() >= self.deadline {
            self.spent.store(true, Ordering::Relaxed);
        }
        self.was_spent()
    }

    /// Whether work was cut short.
    pub(super) fn was_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }
}

/// A function, or one inlined into another, as the debug information has it.
#[derive(Clone, Debug)]
pub(super) struct Function<'a> {
    /// Name as the linker knows it, or else as the source has it.
    pub(super) name: Option<Cow<'a, [u8]>>,
    /// Whether the linker's is not told.
    pub(super) plain: bool,
    /// Function that this one is inlined into, as an index into [`Answers::functions`].
    pub(super) caller: Option<u32>,
    /// Where it is called from, when inlined.
    pub(super) call: Place,
    /// First address of its first range.
    pub(super) start: u64,
}

/// A place in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Index into [`Answers::files`].
    pub(super) file: Option<u32>,
    /// Line, 0 where there is none.
    pub(super) line: u32,
    /// Column, 0 where there is none.
    pub(super) column: u32,
}

impl Place {
    /// The same where its file comes behind `files` others.
    pub(super) fn behind(self, files: u32) -> Self {
        let file = self.file.map(|file| file.saturating_add(files));
        Self { file, ..self }
    }
}

/// What is wanted of a module's debug information, and within what bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'t> {
    /// Addresses, sorted and without repetition.
    pub(super) wanted: &'t [Svma],
    /// Whether to tell where functions are declared.
    pub(super) declarations: bool,
    pub(super) budget: &'t Budget,
}

/// What was found for one address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    /// Innermost function, as an index into [`Answers::functions`].
    pub(super) function: Option<u32>,
    /// Source place of the instruction.
    pub(super) place: Place,
}

impl Answer {
    fn is_empty(&self) -> bool {
        self.function.is_none() && self.place == Place::default()
    }

    /// Better answers are greater: one with a function, then one with a line.
    fn rank(&self) -> (bool, bool) {
        (self.function.is_some(), self.place != Place::default())
    }
}

/// Answers of a whole module.
#[derive(Debug, Default)]
pub(super) struct Answers<'a> {
    /// One for each wanted address, in their order.
    pub(super) answers: Vec<Answer>,
    /// Functions that answers refer to.
    pub(super) functions: Vec<Function<'a>>,
    /// For each function where it is declared, if that was asked: file and line.
    pub(super) declared: Vec<Place>,
    /// By function what stands before its name: functions in which an inlined lambda without a linker's name is.
    pub(super) scopes: HashMap<u32, Arc<[u8]>>,
    /// Source files that answers, functions and declarations refer to.
    pub(super) files: Vec<String>,
    /// Whether a unit could not be read.
    pub(super) damaged: bool,
    /// Files of split units that answered.
    pub(super) split: BTreeSet<PathBuf>,
    /// Object files of split units that were not found.
    pub(super) missing: BTreeSet<String>,
}

/// Resolve the wanted addresses of `task` with the debug information of one module.
///
/// `code` holds the executable ranges, sorted: what the debug information says of other addresses are left-overs of
/// functions that the linker threw away, and ignored.
pub(super) fn resolve<'a>(
    sections: &'a DwarfSections<'a>,
    companions: &'a Companions<'a>,
    code: &[Range<u64>],
    task: &Task<'_>,
) -> Answers<'a> {
    let Task { wanted, budget, .. } = *task;
    let mut answers = Answers {
        answers: vec![Answer::default(); wanted.len()],
        ..Answers::default()
    };
    let units = Units::parse_with(sections.borrow(), companions.alternate.as_ref(), code)
        .releasing(sections);
    let pieces = companions.pieces();
    let mut tried: Vec<Vec<u32>> = vec![Vec::new(); units.len()];
    // The quick table first; the units' own ranges for what it does not know, or was wrong about.
    for round in [units::Source::Aranges, units::Source::UnitRanges] {
        let open: Vec<u32> = (0u32..)
            .zip(&answers.answers)
            .filter(|(_, a)| a.is_empty())
            .map(|(i, _)| i)
            .collect();
        if open.is_empty() || budget.is_spent() {
            break;
        }
        let work = untried(units.place(round, &open, wanted, MAX_CLAIMS), &mut tried);
        let mut visited: Vec<Visited<'a>> = batches(&units, work)
            .into_par_iter()
            .with_max_len(1)
            .flat_map_iter(|batch| {
                let found = batch.iter().map(|(unit, indices)| {
                    let here = indices
                        .iter()
                        .filter_map(|&index| wanted.get(index as usize));
                    let here: Vec<u64> = here.map(|address| address.0).collect();
                    let found = guarded(|| visit(&units, *unit, &here, &pieces, task));
                    (*unit, indices.clone(), found.flatten())
                });
                let found: Vec<Visited<'a>> = found.collect();
                if let Some(((first, _), (last, _))) = batch.first().zip(batch.last()) {
                    units.release(*first, *last);
                }
                found
            })
            .collect();
        // Where several units say as much of an address, the first one counts, whatever else was asked.
        visited.sort_by_key(|(unit, _, _)| *unit);
        for (_, indices, found) in visited {
            let found = found.unwrap_or(UnitAnswers {
                damaged: true,
                ..UnitAnswers::default()
            });
            answers.damaged |= found.damaged;
            answers.merge(&indices, found);
        }
    }
    answers.damaged |= units.is_damaged();
    answers
}

/// A unit, the indices of addresses, and what it said about them; nothing where it could not be read.
type Visited<'a> = (usize, Vec<u32>, Option<UnitAnswers<'a>>);

/// Units in their order with the addresses to look up in each, in batches. The largest batches come first, so that no
/// thread is left with one at the end.
fn batches(units: &Units<'_, '_>, work: Vec<(usize, Vec<u32>)>) -> Vec<Vec<(usize, Vec<u32>)>> {
    let mut batches: Vec<(usize, Vec<_>)> = Vec::new();
    for (unit, indices) in work {
        let size = units.size(unit);
        match batches.last_mut().filter(|(sum, _)| *sum < BATCH) {
            Some((sum, batch)) => {
                *sum = sum.saturating_add(size);
                batch.push((unit, indices));
            }
            None => batches.push((size, vec![(unit, indices)])),
        }
    }
    batches.sort_by_key(|(size, _)| Reverse(size / (8 * BATCH)));
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// What of `placed` was not tried before; it counts as tried then.
fn untried(placed: Vec<(usize, Vec<u32>)>, tried: &mut [Vec<u32>]) -> Vec<(usize, Vec<u32>)> {
    let mut work = Vec::new();
    for (unit, mut indices) in placed {
        let Some(before) = tried.get_mut(unit) else {
            continue;
        };
        indices.retain(|index| before.binary_search(index).is_err());
        if !indices.is_empty() {
            before.extend_from_slice(&indices);
            before.sort_unstable();
            work.push((unit, indices));
        }
    }
    work
}

impl<'a> Answers<'a> {
    /// Take over what one unit said about the addresses `indices`.
    fn merge(&mut self, indices: &[u32], found: UnitAnswers<'a>) {
        let (Ok(first_function), Ok(first_file)) = (
            u32::try_from(self.functions.len()),
            u32::try_from(self.files.len()),
        ) else {
            return;
        };
        let moved = |place: Place| place.behind(first_file);
        self.declared.extend(found.declared.into_iter().map(moved));
        let scopes = found.scopes.into_iter();
        self.scopes.extend(
            scopes.map(|(function, scope)| (function.saturating_add(first_function), scope)),
        );
        self.split.extend(found.split);
        self.missing.extend(found.missing);
        self.files.extend(found.files);
        self.functions
            .extend(found.functions.into_iter().map(|function| {
                Function {
                    caller: function
                        .caller
                        .map(|caller| caller.saturating_add(first_function)),
                    call: moved(function.call),
                    ..function
                }
            }));
        for (&index, answer) in indices.iter().zip(found.answers) {
            let answer = Answer {
                function: answer
                    .function
                    .map(|function| function.saturating_add(first_function)),
                place: moved(answer.place),
            };
            if let Some(held) = self.answers.get_mut(index as usize)
                && answer.rank() > held.rank()
            {
                *held = answer;
            }
        }
    }
}
