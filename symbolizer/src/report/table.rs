//! Self and total of functions, lines, modules, threads and so on.

use std::cmp::Reverse;

use foldhash::HashMap;
use serde::Serialize;

use super::names::NameFilter;
use crate::profile::{Row, ThreadFacts};
use crate::resolve::UnresolvedReason;
use crate::symbolized::{Stack, SymbolizedFrame, SymbolizedProfile};
use crate::text::StringId;

/// What a row of the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Functions.
    Function,
    /// Source lines.
    Line,
    /// Modules.
    Module,
    /// Threads.
    Thread,
    /// Processes.
    Process,
    /// Control groups.
    Cgroup,
    /// CPUs.
    Cpu,
    /// Events.
    Event,
}

impl GroupBy {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Module => "module",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::Cpu => "cpu",
            Self::Event => "event",
        }
    }
}

/// A finished table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Version of this layout.
    pub schema: &'static str,
    /// Unit of all numbers.
    pub unit: String,
    /// Sum over all selected samples.
    pub total: u64,
    /// What a row is.
    pub by: &'static str,
    /// Number of selected samples.
    pub samples: u64,
    /// Rows, by self, then total, then name.
    pub rows: Vec<TableRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// Function, module, thread and so on.
    pub name: String,
    /// Path of the module; empty where a row has none.
    pub module: String,
    /// Source file, where known.
    pub file: Option<String>,
    /// Line, where known.
    pub line: Option<u32>,
    /// Time in the row itself.
    #[serde(rename = "self")]
    pub self_weight: u64,
    /// Time in the row and in what it called; recursion counted once.
    pub total: u64,
    /// Whether it was only ever met inlined into another function.
    pub inlined: bool,
    /// Why there is no name, where there is none.
    pub reason: Option<&'static str>,
}

/// What makes two frames one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    name: StringId,
    module: StringId,
    file: StringId,
    line: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    own: u64,
    total: u64,
    /// Number of the last row that counted here: recursion counts once.
    last: u32,
}

/// Add up the selected samples of `profile`.
pub fn table(profile: &SymbolizedProfile, by: GroupBy, names: &NameFilter) -> Table {
    let unit = profile.unit().to_owned();
    let mut table = Table {
        schema: "rawstack.report.v1",
        unit,
        total: 0,
        by: by.name(),
        samples: 0,
        rows: Vec::new(),
    };
    table.rows = match by {
        GroupBy::Function | GroupBy::Line | GroupBy::Module => {
            by_frame(profile, by, names, &mut table)
        }
        _ => by_row(profile, by, names, &mut table),
    };
    table.rows.sort_by(|a, b| order(a).cmp(&order(b)));
    table
}

fn order(row: &TableRow) -> impl Ord + '_ {
    let weights = (Reverse(row.self_weight), Reverse(row.total));
    (
        weights,
        row.name.as_str(),
        row.module.as_str(),
        row.file.as_deref(),
        row.line,
    )
}

/// Rows of what stands in the stacks.
fn by_frame(
    profile: &SymbolizedProfile,
    by: GroupBy,
    names: &NameFilter,
    table: &mut Table,
) -> Vec<TableRow> {
    let groups = Groups::of(profile, by);
    let mut sums = vec![Sum::default(); groups.keys.len()];
    let selected = names.of(profile);
    let mut stack = Stack::new();
    for (number, row) in (1u32..).zip(&profile.rows) {
        if !selected.stack(row, &mut stack) {
            continue;
        }
        let weight = profile.weight(row, &table.unit);
        table.total = table.total.saturating_add(weight);
        table.samples = table.samples.saturating_add(row.samples);
        for (depth, &frame) in stack.iter().enumerate() {
            let group = groups.of_frame.get(frame as usize).copied().unwrap_or(0);
            let Some(sum) = sums.get_mut(group as usize) else {
                continue;
            };
            if depth == 0 {
                sum.own = sum.own.saturating_add(weight);
            }
            if sum.last != number {
                sum.last = number;
                sum.total = sum.total.saturating_add(weight);
            }
        }
    }
    groups.rows(profile, &sums)
}

/// Distinct rows, and which one each frame belongs to.
pub(super) struct Groups {
    keys: Vec<GroupKey>,
    pub(super) of_frame: Vec<u32>,
    /// Whether the group was only met inlined.
    inlined: Vec<bool>,
    /// The source file of a group, where all its frames agree.
    files: Vec<Option<StringId>>,
    /// Why the group's first frame has no name.
    reasons: Vec<Option<UnresolvedReason>>,
    /// Whether a group is a whole module, which has neither a place nor a lack of a name.
    whole_modules: bool,
}

impl Groups {
    /// Name and module of a group.
    pub(super) fn text<'p>(
        &self,
        profile: &'p SymbolizedProfile,
        group: u32,
    ) -> (&'p str, &'p str) {
        let key = self.keys.get(group as usize);
        key.map_or(("", ""), |key| {
            (profile.text(key.name), profile.text(key.module))
        })
    }

    /// Whether a group was only met inlined.
    pub(super) fn is_inlined(&self, group: u32) -> bool {
        self.inlined.get(group as usize).copied().unwrap_or(false)
    }

    pub(super) fn of(profile: &SymbolizedProfile, by: GroupBy) -> Self {
        let mut groups = Self {
            keys: Vec::new(),
            of_frame: Vec::new(),
            inlined: Vec::new(),
            files: Vec::new(),
            reasons: Vec::new(),
            whole_modules: by == GroupBy::Module,
        };
        let mut index: HashMap<GroupKey, u32> = HashMap::default();
        for frame in profile.frames() {
            let key = key(frame, by);
            let next = u32::try_from(groups.keys.len()).unwrap_or(u32::MAX);
            let id = *index.entry(key).or_insert(next);
            if id == next {
                groups.keys.push(key);
                groups.inlined.push(true);
                groups.files.push(Some(frame.place.file));
                groups.reasons.push(frame.reason);
            }
            if let Some(inlined) = groups.inlined.get_mut(id as usize) {
                *inlined &= frame.inlined;
            }
            if let Some(file) = groups.files.get_mut(id as usize)
                && *file != Some(frame.place.file)
            {
                *file = None;
            }
            groups.of_frame.push(id);
        }
        groups
    }

    fn rows(&self, profile: &SymbolizedProfile, sums: &[Sum]) -> Vec<TableRow> {
        let parts = self.keys.iter().zip(&self.inlined).zip(&self.files);
        let parts = parts.zip(&self.reasons).zip(sums);
        let met = parts.filter(|(_, sum)| sum.total > 0 || sum.last > 0);
        let text = |id: StringId| profile.text(id).to_owned();
        let single = !self.whole_modules;
        let rows = met.map(|((((key, &inlined), file), reason), sum)| TableRow {
            name: text(key.name),
            module: text(key.module),
            file: file.filter(|_| single).and_then(StringId::get).map(text),
            line: (key.line != 0).then_some(key.line),
            self_weight: sum.own,
            total: sum.total,
            inlined: inlined && single,
            reason: reason.filter(|_| single).map(UnresolvedReason::name),
        });
        rows.collect()
    }
}

fn key(frame: &SymbolizedFrame, by: GroupBy) -> GroupKey {
    let of_function = GroupKey {
        name: frame.name,
        module: frame.module,
        file: StringId::NONE,
        line: 0,
    };
    match by {
        GroupBy::Module => GroupKey {
            name: frame.module,
            ..of_function
        },
        GroupBy::Line => GroupKey {
            file: frame.place.file,
            line: frame.place.line,
            ..of_function
        },
        _ => of_function,
    }
}

/// Rows of what a whole sample belongs to: self and total are the same.
fn by_row(
    profile: &SymbolizedProfile,
    by: GroupBy,
    names: &NameFilter,
    table: &mut Table,
) -> Vec<TableRow> {
    let mut sums: HashMap<String, u64> = HashMap::default();
    let selected = names.of(profile);
    let mut stack = Stack::new();
    for row in &profile.rows {
        if !selected.stack(row, &mut stack) {
            continue;
        }
        let weight = profile.weight(row, &table.unit);
        table.total = table.total.saturating_add(weight);
        table.samples = table.samples.saturating_add(row.samples);
        let sum = sums.entry(label(profile, by, row)).or_default();
        *sum = sum.saturating_add(weight);
    }
    let row = |(name, weight)| TableRow {
        name,
        module: String::new(),
        file: None,
        line: None,
        self_weight: weight,
        total: weight,
        inlined: false,
        reason: None,
    };
    sums.into_iter().map(row).collect()
}

fn label(profile: &SymbolizedProfile, by: GroupBy, row: &Row) -> String {
    let unknown = ThreadFacts::default();
    let thread = profile.thread(row.thread).unwrap_or(&unknown);
    let several = profile.archives.len() > 1;
    let host = if several {
        format!(" of archive {}", thread.archive + 1)
    } else {
        String::new()
    };
    match by {
        GroupBy::Thread => format!(
            "{} (tid {}, pid {}{host})",
            thread.comm, thread.tid, thread.pid
        ),
        GroupBy::Process => format!("{} (pid {}{host})", thread.process_comm, thread.pid),
        GroupBy::Cgroup if thread.cgroup.is_empty() => "[unknown]".to_owned(),
        GroupBy::Cgroup => thread.cgroup.clone(),
        GroupBy::Cpu => format!("CPU {}{host}", row.cpu),
        _ => profile
            .events
            .get(row.event as usize)
            .map_or_else(String::new, |event| event.name.clone()),
    }
}
