//! Stack copies as columns. Version 1 had a copy's bytes whole. Version 3 holds this one.

use rkyv::{Archive, Serialize};

use crate::copies::{CopyLoss, MAX_RUNS, Missing, Row, Run, StackCopies, WORD};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::{
    apply, apply32, difference, difference32, pack, pack_deltas, pack_deltas32, unpack, unpack_as,
    unpack_deltas, unpack_deltas32,
};
use crate::v1::{checked_rows, row_count};

/// Stack copies chunk.
#[derive(Archive, Serialize)]
pub(crate) struct StackCopiesRoot {
    pub(crate) rows: u32,
    pub(crate) tasks: u32,
    /// Rows of the missing ranges.
    pub(crate) ranges: u32,
    pub(crate) runs: u32,
    pub(crate) task_pid: Vec<u8>,
    pub(crate) task_tid: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) task: Vec<u8>,
    pub(crate) machine: Vec<u8>,
    pub(crate) loss: Vec<u8>,
    pub(crate) registers: Vec<u8>,
    /// In words, to that of the task's last row.
    pub(crate) start: Vec<u8>,
    /// To that of the task's last row.
    pub(crate) end: Vec<u8>,
    pub(crate) left_out: Vec<u8>,
    pub(crate) missing: Vec<u8>,
    /// In words, like the length.
    pub(crate) range_offset: Vec<u8>,
    pub(crate) range_len: Vec<u8>,
    pub(crate) same: Vec<u8>,
    pub(crate) new: Vec<u8>,
    /// Words of eight bytes, not a column: zstd finds pointers again as a whole.
    pub(crate) words: Vec<u8>,
}

/// Where a task's stack was last.
#[derive(Clone, Copy, Default)]
struct Before {
    start: u64,
    end: u64,
}

/// What version 2 can say of copies, which are checked, with these words.
pub(crate) fn encode(copies: &StackCopies, words: &[u64]) -> Result<StackCopiesRoot, Invalid> {
    let (rows, tasks) = (&copies.rows, &copies.tasks);
    let mut before = vec![Before::default(); tasks.len()];
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for row in rows {
        let known = &mut before[row.task as usize];
        let start = row.start.0 / WORD;
        starts.push(difference(known.start, start));
        ends.push(difference(known.end, row.end.0));
        *known = Before {
            start,
            end: row.end.0,
        };
    }
    Ok(StackCopiesRoot {
        rows: row_count(rows)?,
        tasks: row_count(tasks)?,
        ranges: row_count(&copies.missing)?,
        runs: u32::try_from(copies.runs.len()).map_err(|_| Invalid::Rows)?,
        task_pid: pack_deltas32(tasks.iter().map(|&(pid, _)| pid)),
        task_tid: pack(tasks.iter().map(|&(pid, tid)| difference32(pid, tid))),
        owner: pack_deltas(rows.iter().map(|row| row.owner.0)),
        task: pack(rows.iter().map(|row| row.task)),
        machine: pack(rows.iter().map(|row| row.machine)),
        loss: pack(rows.iter().map(|row| row.loss as u8)),
        registers: pack(rows.iter().map(|row| row.registers)),
        start: pack(starts),
        end: pack(ends),
        left_out: pack(rows.iter().map(|row| row.left_out)),
        missing: pack(rows.iter().map(|row| row.missing)),
        range_offset: pack(copies.missing.iter().map(|range| range.offset / WORD)),
        range_len: pack(copies.missing.iter().map(|range| range.len / WORD)),
        same: pack(copies.runs.iter().map(|run| run.same)),
        new: pack(copies.runs.iter().map(|run| run.new)),
        words: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    })
}

pub(crate) fn decode(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let copies = decode_unchecked(a)?;
    copies.check()?;
    Ok(copies)
}

/// Undo [`encode`] with what later versions add left empty, and check only that columns have their rows.
pub(crate) fn decode_unchecked(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let (words, rest) = a.words.as_chunks::<{ size_of::<u64>() }>();
    if !rest.is_empty() {
        return Err(Invalid::Column);
    }
    let tasks = decode_tasks(a)?;
    Ok(StackCopies {
        rows: decode_rows(a, tasks.len())?,
        tasks,
        missing: decode_missing(a)?,
        runs: decode_runs(a)?,
        words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        ..StackCopies::default()
    })
}

fn decode_tasks(a: &ArchivedStackCopiesRoot) -> Result<Vec<(u32, u32)>, Invalid> {
    let tasks = checked_rows(a.tasks.to_native())?;
    let pids = unpack_deltas32(&a.task_pid, tasks)?;
    let tids: Vec<u32> = unpack_as(&a.task_tid, tasks)?;
    let pairs = pids.into_iter().zip(tids);
    Ok(pairs.map(|(pid, tid)| (pid, apply32(pid, tid))).collect())
}

fn decode_rows(a: &ArchivedStackCopiesRoot, tasks: usize) -> Result<Vec<Row>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let owners = unpack_deltas(&a.owner, rows)?;
    let task: Vec<u32> = unpack_as(&a.task, rows)?;
    let machines = unpack_as(&a.machine, rows)?;
    let losses: Vec<u8> = unpack_as(&a.loss, rows)?;
    let registers = unpack(&a.registers, rows)?;
    let starts = unpack(&a.start, rows)?;
    let ends = unpack(&a.end, rows)?;
    let left_out = unpack(&a.left_out, rows)?;
    let missing = unpack_as(&a.missing, rows)?;
    let mut before = vec![Before::default(); tasks];
    let row = |at: usize| {
        let known = before.get_mut(task[at] as usize);
        let known = known.ok_or(Invalid::Reference)?;
        let start = apply(known.start, starts[at]);
        let end = apply(known.end, ends[at]);
        *known = Before { start, end };
        Ok(Row {
            owner: StackId(owners[at]),
            task: task[at],
            machine: machines[at],
            loss: loss(losses[at])?,
            registers: registers[at],
            start: Addr(start.checked_mul(WORD).ok_or(Invalid::Value)?),
            end: Addr(end),
            left_out: left_out[at],
            missing: missing[at],
            ..Row::default()
        })
    };
    (0..rows).map(row).collect()
}

fn loss(number: u8) -> Result<CopyLoss, Invalid> {
    let loss = CopyLoss::ALL.get(usize::from(number)).copied();
    loss.ok_or(Invalid::Value)
}

fn decode_missing(a: &ArchivedStackCopiesRoot) -> Result<Vec<Missing>, Invalid> {
    let ranges = checked_rows(a.ranges.to_native())?;
    let offsets: Vec<u32> = unpack_as(&a.range_offset, ranges)?;
    let lens: Vec<u32> = unpack_as(&a.range_len, ranges)?;
    let pairs = offsets.into_iter().zip(lens);
    let range = |(offset, len)| Missing {
        offset: u64::from(offset) * WORD,
        len: u64::from(len) * WORD,
    };
    Ok(pairs.map(range).collect())
}

fn decode_runs(a: &ArchivedStackCopiesRoot) -> Result<Vec<Run>, Invalid> {
    let runs = a.runs.to_native() as usize;
    if runs > MAX_RUNS {
        return Err(Invalid::Rows);
    }
    let same: Vec<u32> = unpack_as(&a.same, runs)?;
    let new: Vec<u32> = unpack_as(&a.new, runs)?;
    let pairs = same.into_iter().zip(new);
    Ok(pairs.map(|(same, new)| Run { same, new }).collect())
}
