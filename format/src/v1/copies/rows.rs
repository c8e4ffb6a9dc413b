//! Threads, and of each copy all that is one number.

use rkyv::{Archive, Serialize};

use crate::copies::{CopyLoss, Row, StackCopies, WORD};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::{
    apply, apply32, difference, difference32, pack, pack_deltas, pack_deltas32, unpack, unpack_as,
    unpack_deltas, unpack_deltas32,
};
use crate::v1::{checked_rows, row_count};

/// Threads and copies.
#[derive(Archive, Serialize)]
pub(crate) struct Rows {
    pub(crate) rows: u32,
    pub(crate) tasks: u32,
    pub(crate) task_pid: Vec<u8>,
    pub(crate) task_tid: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) task: Vec<u8>,
    pub(crate) machine: Vec<u8>,
    pub(crate) loss: Vec<u8>,
    pub(crate) registers: Vec<u8>,
    /// In words, to that of the task's last row.
    pub(crate) start: Vec<u8>,
    /// To that of the task's last row, as those below.
    pub(crate) end: Vec<u8>,
    pub(crate) program_since: Vec<u8>,
    pub(crate) trampoline: Vec<u8>,
    pub(crate) left_out: Vec<u8>,
}

/// What a task's last row had, to which the next is told.
#[derive(Clone, Copy, Default)]
struct Before {
    start: u64,
    end: u64,
    program_since: u64,
    trampoline: u64,
}

impl Before {
    fn of(row: &Row) -> Self {
        Self {
            start: row.start.0 / WORD,
            end: row.end.0,
            program_since: row.program_since_ns,
            trampoline: row.trampoline.0,
        }
    }

    /// How `next` differs.
    fn difference(self, next: Self) -> Self {
        Self {
            start: difference(self.start, next.start),
            end: difference(self.end, next.end),
            program_since: difference(self.program_since, next.program_since),
            trampoline: difference(self.trampoline, next.trampoline),
        }
    }

    /// Undo [`difference`](Self::difference).
    fn apply(self, change: Self) -> Self {
        Self {
            start: apply(self.start, change.start),
            end: apply(self.end, change.end),
            program_since: apply(self.program_since, change.program_since),
            trampoline: apply(self.trampoline, change.trampoline),
        }
    }
}

/// The rows of copies that are checked.
pub(super) fn encode(copies: &StackCopies) -> Result<Rows, Invalid> {
    let (rows, tasks) = (&copies.rows, &copies.tasks);
    let mut before = vec![Before::default(); tasks.len()];
    let changes: Vec<Before> = rows
        .iter()
        .map(|row| {
            let known = &mut before[row.task as usize];
            let next = Before::of(row);
            let change = known.difference(next);
            *known = next;
            change
        })
        .collect();
    Ok(Rows {
        rows: row_count(rows)?,
        tasks: row_count(tasks)?,
        task_pid: pack_deltas32(tasks.iter().map(|&(pid, _)| pid)),
        task_tid: pack(tasks.iter().map(|&(pid, tid)| difference32(pid, tid))),
        owner: pack_deltas(rows.iter().map(|row| row.owner.0)),
        task: pack(rows.iter().map(|row| row.task)),
        machine: pack(rows.iter().map(|row| row.machine)),
        loss: pack(rows.iter().map(|row| row.loss as u8)),
        registers: pack(rows.iter().map(|row| row.registers)),
        start: pack(changes.iter().map(|change| change.start)),
        end: pack(changes.iter().map(|change| change.end)),
        program_since: pack(changes.iter().map(|change| change.program_since)),
        trampoline: pack(changes.iter().map(|change| change.trampoline)),
        left_out: pack(rows.iter().map(|row| row.left_out)),
    })
}

/// Copies with nothing yet but their rows, which are not checked.
pub(super) fn decode(a: &ArchivedRows) -> Result<StackCopies, Invalid> {
    let tasks = decode_tasks(a)?;
    let rows = decode_rows(a, tasks.len())?;
    Ok(StackCopies {
        tasks,
        rows,
        ..StackCopies::default()
    })
}

fn decode_tasks(a: &ArchivedRows) -> Result<Vec<(u32, u32)>, Invalid> {
    let tasks = checked_rows(a.tasks.to_native())?;
    let pids = unpack_deltas32(&a.task_pid, tasks)?;
    let tids: Vec<u32> = unpack_as(&a.task_tid, tasks)?;
    let pairs = pids.into_iter().zip(tids);
    Ok(pairs.map(|(pid, tid)| (pid, apply32(pid, tid))).collect())
}

fn decode_rows(a: &ArchivedRows, tasks: usize) -> Result<Vec<Row>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let owners = unpack_deltas(&a.owner, rows)?;
    let task: Vec<u32> = unpack_as(&a.task, rows)?;
    let machines = unpack_as(&a.machine, rows)?;
    let losses: Vec<u8> = unpack_as(&a.loss, rows)?;
    let registers = unpack(&a.registers, rows)?;
    let starts = unpack(&a.start, rows)?;
    let ends = unpack(&a.end, rows)?;
    let since = unpack(&a.program_since, rows)?;
    let trampolines = unpack(&a.trampoline, rows)?;
    let left_out = unpack(&a.left_out, rows)?;
    let mut before = vec![Before::default(); tasks];
    let row = |at: usize| {
        let known = before.get_mut(task[at] as usize);
        let known = known.ok_or(Invalid::Reference)?;
        *known = known.apply(Before {
            start: starts[at],
            end: ends[at],
            program_since: since[at],
            trampoline: trampolines[at],
        });
        Ok(Row {
            owner: StackId(owners[at]),
            task: task[at],
            machine: machines[at],
            loss: loss(losses[at])?,
            registers: registers[at],
            start: Addr(known.start.checked_mul(WORD).ok_or(Invalid::Value)?),
            end: Addr(known.end),
            left_out: left_out[at],
            program_since_ns: known.program_since,
            trampoline: Addr(known.trampoline),
            ..Row::default()
        })
    };
    (0..rows).map(row).collect()
}

fn loss(number: u8) -> Result<CopyLoss, Invalid> {
    let loss = CopyLoss::ALL.get(usize::from(number)).copied();
    loss.ok_or(Invalid::Value)
}
