//! What is compared: runs of either side, whether they can be compared at all, and what they cost per what.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use foldhash::HashMap;
use rawstack_format::record::Run;

use crate::profile::Summary;
use crate::profile::runs::{BLOCKS, Part, RunCounts, Spans};
use crate::text::clean;

/// Base and new, as they are named to people.
pub const NAMES: [&str; 2] = ["BASE", "NEW"];

/// One run of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideRun {
    /// Number of the archive.
    pub archive: u32,
    /// Number of the run in it.
    pub run: u32,
    /// Declared work, 0 where none was.
    pub work: f64,
    /// Start, monotonic nanoseconds of its host.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// Both sides, base first.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// Archives of either side, by number.
    pub archives: [Range<usize>; 2],
    /// Runs of either side that ended.
    pub runs: [Vec<SideRun>; 2],
    /// Why what is said of them may not be relied on.
    pub reasons: Vec<String>,
}

impl Sides {
    /// The runs of `archives`, of which the first `bases` are the base's; of these the `selected` ones (all if empty).
    pub fn of(archives: &[Summary], bases: usize, selected: &[RangeInclusive<u32>]) -> Self {
        let bases = bases.min(archives.len());
        let mut sides = Self {
            archives: [0..bases, bases..archives.len()],
            ..Self::default()
        };
        for (side, name) in NAMES.iter().enumerate() {
            for number in sides.archives[side].clone() {
                let Some(archive) = archives.get(number) else {
                    continue;
                };
                let whole = [whole_run(archive)];
                let runs = if archive.runs.is_empty() {
                    &whole[..]
                } else {
                    &archive.runs
                };
                let is_selected = |run: &&Run| {
                    selected.is_empty() || selected.iter().any(|range| range.contains(&run.run))
                };
                for run in runs.iter().filter(is_selected) {
                    sides.add(side, number, archive, run, name);
                }
            }
        }
        sides
    }

    fn add(&mut self, side: usize, number: usize, archive: &Summary, run: &Run, name: &str) {
        let shown = format!("run {} of {name} ({})", run.run, clean(&archive.path));
        if run.end_ns == 0 {
            self.reasons
                .push(format!("{shown} did not end, and is left out"));
            return;
        }
        if run.exit != 0 {
            self.reasons
                .push(format!("{shown} failed with status {}", run.exit));
        }
        self.runs[side].push(SideRun {
            archive: u32::try_from(number).unwrap_or(u32::MAX),
            run: run.run,
            work: if run.work.is_finite() { run.work } else { 0.0 },
            start_ns: run.start_ns,
            end_ns: run.end_ns,
        });
    }

    /// Whether there is one run a side, so that nothing tells how runs differ.
    pub fn is_single(&self) -> bool {
        self.runs.iter().all(|runs| runs.len() == 1)
    }

    /// Times of the runs.
    pub fn spans(&self) -> Spans {
        let runs = self.runs.iter().flatten();
        runs.map(|run| ((run.archive, run.run), (run.start_ns, run.end_ns)))
            .collect()
    }

    /// Whether every run has a declared work.
    pub fn has_work(&self) -> bool {
        self.runs.iter().flatten().all(|run| run.work > 0.0)
    }

    /// Columns of the parts of `counts`: whole runs, or the blocks of the single ones.
    pub fn columns(&self, counts: &RunCounts) -> Columns {
        let in_blocks = counts.parts.iter().any(|part| part.block > 0);
        let blocks = if in_blocks { BLOCKS } else { 1 };
        let mut columns = Columns {
            of_part: vec![None; counts.parts.len()],
            works: [Vec::new(), Vec::new()],
            first_new: 0,
        };
        let mut index: HashMap<Part, usize> = HashMap::default();
        let mut next = 0;
        for (runs, works) in self.runs.iter().zip(&mut columns.works) {
            for run in runs {
                for block in 0..blocks {
                    index.insert(
                        Part {
                            archive: run.archive,
                            run: run.run,
                            block,
                        },
                        next,
                    );
                    works.push(run.work / f64::from(blocks));
                    next += 1;
                }
            }
        }
        columns.first_new = columns.works[0].len();
        for (slot, part) in columns.of_part.iter_mut().zip(&counts.parts) {
            *slot = index.get(part).copied();
        }
        columns
    }
}

/// Counts of a comparison stand in columns: those of the base's runs first.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The column of each part of the counts; none for what does not count.
    pub of_part: Vec<Option<usize>>,
    /// Declared work of each column, by side.
    pub works: [Vec<f64>; 2],
    /// The first column of the new side.
    pub first_new: usize,
}

impl Columns {
    /// Number of columns.
    pub fn len(&self) -> usize {
        self.works[0].len() + self.works[1].len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The side of a column.
    pub fn side(&self, column: usize) -> usize {
        usize::from(column >= self.first_new)
    }
}

/// A recording without runs is one.
fn whole_run(archive: &Summary) -> Run {
    Run {
        run: 0,
        start_ns: archive.start_ns(),
        end_ns: archive.end_ns().max(1),
        work: 0.0,
        exit: 0,
    }
}

/// Facts in which both sides must agree, with what they differ in.
pub fn differences(archives: &[Summary], sides: &Sides, event: &str) -> Vec<String> {
    let host = |archive: &Summary, wanted: &str| {
        let facts = archive
            .recording
            .iter()
            .flat_map(|recording| &recording.host);
        facts
            .filter(|(name, _)| name == wanted)
            .map(|(_, value)| clean(value).into_owned())
            .next()
    };
    let rate = |archive: &Summary| {
        let events = archive
            .recording
            .iter()
            .flat_map(|recording| &recording.events);
        let mut found = events.filter(|held| held.name == event);
        found.next().map(|event| match event.frequency {
            0 => format!("a sample each {}", event.period),
            frequency => format!("{frequency} Hz"),
        })
    };
    type Fact<'f> = (&'f str, &'f dyn Fn(&Summary) -> Option<String>);
    let facts: [Fact<'_>; 3] = [
        ("kernel", &|archive| host(archive, "kernel_release")),
        ("CPU", &|archive| host(archive, "cpu_model")),
        ("frequency", &rate),
    ];
    let mut found = Vec::new();
    for (name, fact) in facts {
        let [base, new] = sides.archives.each_ref().map(|range| {
            let of_side = archives.get(range.clone()).unwrap_or_default();
            of_side
                .iter()
                .filter_map(fact)
                .collect::<BTreeSet<String>>()
        });
        let known = !base.is_empty() && !new.is_empty();
        if known && (base != new || base.len() > 1) {
            let list = |side: BTreeSet<String>| side.into_iter().collect::<Vec<_>>().join(", ");
            found.push(format!(
                "the {name} differs: {} in BASE, {} in NEW",
                list(base),
                list(new)
            ));
        }
    }
    found
}

/// Part of the samples of a side that were lost, 0 to 1.
pub fn loss(archives: &[Summary], range: &Range<usize>) -> f64 {
    let archives = archives.get(range.clone()).unwrap_or_default();
    let (mut lost, mut kept) = (0.0, 0.0);
    for archive in archives {
        lost += archive
            .drops
            .values()
            .map(|drop| drop.count as f64)
            .sum::<f64>();
        lost += archive.damage.lost_ids as f64;
        kept += archive.samples as f64;
    }
    if lost > 0.0 {
        lost / (lost + kept)
    } else {
        0.0
    }
}
