//! What an archive says of itself, and how whole it is.

use std::collections::BTreeMap;
use std::mem;

use foldhash::HashSet;
use rawstack_format::record::{
    Drop, DropReason, End, KernelModule, Part, Recording, Run, Sample, State,
};
use rawstack_format::{ChunkInfo, Counters, Damage};

use super::tables::LostReferences;
use super::tree::ModuleId;
use crate::copied::{CopyEnd, CopyTotals, EndCounts};
use crate::text::clean;

/// Runs that are told of one archive.
const MAX_RUNS: usize = 1 << 16;

/// Losses for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropTotal {
    /// How many.
    pub count: u64,
    /// Time of the first.
    pub from_ns: u64,
    /// Time of the last.
    pub to_ns: u64,
}

/// What a part of a merged archive has besides what it had as an archive.
#[derive(Clone, Debug, Default)]
pub struct MergedFacts {
    /// The merged archive.
    pub path: String,
    /// Number of the part, from 1.
    pub number: u32,
    /// Position behind the part in the merged archive, in bytes.
    pub end: u64,
    /// The first so many gaps are of the archive as it was when it was merged; their places are its own.
    pub old_gaps: usize,
    /// What was to be said of the archive that it was is lost.
    pub is_anonymous: bool,
    /// The merged archive, or one that it was made of, ended with this part before its last one.
    pub is_cut: bool,
}

/// Facts and counts of one archive, or of one part of a merged archive.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Where it was read from; of a part of a merged archive, what it was called when it was merged.
    pub path: String,
    /// Where it is now, when it is a part of a merged archive.
    pub merged: Option<MergedFacts>,
    /// Version of the format.
    pub format: (u16, u16),
    /// The first recording row, where it was not lost.
    pub recording: Option<Recording>,
    /// Totals, where the recording ended by itself.
    pub end: Option<End>,
    /// Sample rows.
    pub samples: u64,
    /// IDs by state, in the order of [`State::ALL`], counted from rows and drops.
    pub states: [u64; 8],
    /// Losses by reason.
    pub drops: BTreeMap<DropReason, DropTotal>,
    /// Copies of stacks.
    pub copies: CopyTotals,
    /// User halves of samples by how unwinding their copies ended; empty where none were unwound.
    pub ends: EndCounts<ModuleId>,
    /// Running totals of the last whole chunk.
    pub counters: Counters,
    /// Time of the last sample, completion or drop.
    pub last_ns: u64,
    /// Repetitions of the command, by number.
    pub runs: Vec<Run>,
    /// Kernel modules that were loaded.
    pub kernel_modules: Vec<KernelModule>,
    /// Processes with samples.
    pub processes: u64,
    /// Threads with samples.
    pub threads: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Damage.
    pub damage: Damage,
    /// References that lead into lost chunks.
    pub lost_references: LostReferences,
    /// Completions whose samples are lost.
    pub orphan_completions: u64,
    /// Samples that went on without their completion because too many waited.
    pub overtaken: u64,
    /// What the merged archive says of this part.
    pub(super) part: Option<Part>,
    run_rows: BTreeMap<u32, Run>,
    first_ns: Option<u64>,
    pids: HashSet<u32>,
    tids: HashSet<u32>,
}

impl Summary {
    /// The summary of what is read from `path`.
    pub(super) fn new(path: String) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// Start of the recording, or of what is left of it.
    pub fn start_ns(&self) -> u64 {
        match &self.recording {
            Some(recording) => recording.start_ns,
            None => self.first_ns.unwrap_or(0),
        }
    }

    /// End of the recording: its own, or the last thing seen.
    pub fn end_ns(&self) -> u64 {
        self.end.map_or(self.last_ns, |end| end.end_ns)
    }

    /// IDs that were reserved: as the recorder counted them, or as the last frames say.
    pub fn reserved(&self) -> u64 {
        let behind = self.damage.gaps.iter().filter(|gap| gap.next_seq.is_none());
        let cut = behind.fold(0, |sum: u64, gap| sum.saturating_add(gap.lost_ids));
        self.end
            .map_or(self.counters.ids.saturating_add(cut), |end| end.reserved)
    }

    /// All IDs that rows and drops account for.
    pub fn accounted(&self) -> u64 {
        self.states.iter().copied().fold(0, u64::saturating_add)
    }

    /// Take rows of runs: a later one of the same run says more.
    pub(super) fn add_runs(&mut self, rows: Vec<Run>) {
        for row in rows {
            if self.run_rows.len() < MAX_RUNS || self.run_rows.contains_key(&row.run) {
                self.run_rows.insert(row.run, row);
            }
        }
    }

    pub(super) fn add_sample(&mut self, row: &Sample, end: Option<CopyEnd<ModuleId>>) {
        self.samples += 1;
        if let Some(end) = end {
            self.ends.add(end);
        }
        self.add_state(row.state, 1);
        self.first_ns.get_or_insert(row.time_ns);
        self.last_ns = self.last_ns.max(row.time_ns);
        self.pids.insert(row.pid);
        self.tids.insert(row.tid);
    }

    pub(super) fn add_drop(&mut self, drop: &Drop) {
        let new = DropTotal {
            count: 0,
            from_ns: drop.from_ns,
            to_ns: drop.to_ns,
        };
        let total = self.drops.entry(drop.reason).or_insert(new);
        total.count = total.count.saturating_add(drop.count);
        total.from_ns = total.from_ns.min(drop.from_ns);
        total.to_ns = total.to_ns.max(drop.to_ns);
        self.last_ns = self.last_ns.max(drop.to_ns);
        if drop.reason.counts_ids() {
            self.add_state(State::Dropped, drop.count);
        }
    }

    fn add_state(&mut self, state: State, count: u64) {
        if let Some(total) = self.states.get_mut(state as usize) {
            *total = total.saturating_add(count);
        }
    }

    /// Account for a whole chunk.
    pub(super) fn add_chunk(&mut self, info: &ChunkInfo) {
        self.counters = info.counters;
        match &mut self.merged {
            Some(merged) => {
                merged.number = u32::from(info.part) + 1;
                merged.end = info.position.saturating_add(info.len_in_file());
                self.bytes = self.bytes.saturating_add(info.len_in_file());
            }
            None => self.bytes = info.position.saturating_add(info.len_in_file()),
        }
    }

    /// End with what the reader found damaged. `at_end`: nothing comes behind.
    pub(super) fn finish(&mut self, damage: &Damage, at_end: bool) {
        self.damage = damage.clone();
        self.bytes = self.bytes.saturating_add(damage.tail_bytes);
        self.finish_part(at_end);
        self.runs = mem::take(&mut self.run_rows).into_values().collect();
        self.processes = self.pids.len() as u64;
        self.threads = self.tids.len() as u64;
        self.pids.clear();
        self.tids.clear();
    }

    /// Become what the part was when it was merged, with what was lost since.
    fn finish_part(&mut self, at_end: bool) {
        let Some(merged) = &mut self.merged else {
            return;
        };
        merged.path = self.path.clone();
        merged.end = merged.end.saturating_add(self.damage.tail_bytes);
        let Some(part) = self.part.take() else {
            self.path = format!("part {} of {}", merged.number, self.path);
            merged.is_anonymous = true;
            merged.is_cut = at_end;
            return;
        };
        merged.is_cut = part.is_cut || (at_end && !part.is_last);
        merged.old_gaps = part.damage.gaps.len();
        self.path = clean(&part.name).into_owned();
        (self.format, self.bytes) = (part.format, part.bytes);
        let since = mem::replace(&mut self.damage, part.damage);
        self.damage.add_copy(&since);
    }

    /// Everything that is not as a whole archive should be; empty when whole.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let damage = &self.damage;
        if damage.header_copy {
            problems.push("one copy of the header is damaged".to_owned());
        }
        for (place, gap) in damage.gaps.iter().enumerate() {
            let (bytes, cause) = (gap.end.saturating_sub(gap.start), gap.cause.name());
            let merged = self.merged.as_ref();
            let of = merged.filter(|merged| place >= merged.old_gaps);
            let of = of.map_or_else(String::new, |merged| format!(" of {}", merged.path));
            problems.push(format!(
                "{bytes} bytes from byte {} on{of} are damaged or missing ({cause})",
                gap.start
            ));
        }
        if damage.lost_parts > 0 {
            problems.push(format!("{} whole parts are missing", damage.lost_parts));
        }
        problems.extend(self.merge_problems());
        if damage.gap_count > damage.gaps.len() as u64 {
            problems.push(format!(
                "{} more damaged pieces",
                damage.gap_count - damage.gaps.len() as u64
            ));
        }
        if damage.lost_chunks > 0 {
            problems.push(format!("{} chunks are missing", damage.lost_chunks));
        }
        if damage.lost_ids > 0 {
            problems.push(format!(
                "{} IDs are lost with damaged or missing chunks",
                damage.lost_ids
            ));
        }
        if !damage.ended {
            problems.push(self.kill_story());
        }
        let lost = self.lost_references;
        if lost.total() > 0 {
            let (stacks, frames, modules) = (lost.stacks, lost.frames, lost.modules);
            problems.push(format!(
                "references into lost chunks: {stacks} stacks, {frames} frames, {modules} modules"
            ));
        }
        if self.orphan_completions > 0 {
            problems.push(format!(
                "{} completions belong to no sample",
                self.orphan_completions
            ));
        }
        problems.extend(self.id_problems());
        problems
    }

    /// What is missing of the account that a merged archive gives of a part.
    fn merge_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let Some(merged) = &self.merged else {
            return problems;
        };
        if merged.is_anonymous {
            problems.push("what the archive was that this part comes from is lost".to_owned());
        }
        if merged.is_cut {
            problems.push("the merged archive ended here, before its last part".to_owned());
        }
        problems
    }

    fn kill_story(&self) -> String {
        let seconds = self.last_ns.saturating_sub(self.start_ns()) / 1_000_000;
        let (whole, part) = (seconds / 1000, seconds % 1000);
        format!(
            "the recording did not end by itself: what came after {whole}.{part:03} s is missing"
        )
    }

    /// Sums that do not fit: every reserved ID ends in one state.
    fn id_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (reserved, accounted) = (self.reserved(), self.accounted());
        if let Some(end) = self.end {
            let stated = end.states.iter().copied().fold(0, u64::saturating_add);
            if stated != reserved {
                problems.push(format!(
                    "{reserved} IDs were reserved, and the states stated at the end sum to {stated}"
                ));
            }
            if end.states != self.states && self.damage.lost_ids == 0 {
                problems.push("the states stated at the end are not those of the rows".to_owned());
            }
        }
        if accounted.saturating_add(self.damage.lost_ids) != reserved {
            problems.push(format!(
                "{reserved} IDs were reserved, and rows and drops account for {accounted}"
            ));
        }
        problems
    }
}
