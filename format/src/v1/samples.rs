//! Samples, completions and drops as columns.
//!
//! A sample is predicted from the one before it on the same CPU. What each column holds was chosen by measurement: see
//! FORMAT.md, "What a sample costs".

use rkyv::{Archive, Serialize};

use super::column::{
    apply, apply32, difference, difference32, narrow, pack, pack_deltas, pack_deltas32, unpack,
    unpack_as, unpack_deltas, unpack_deltas32,
};
use super::stacks::{index_code, index_of};
use super::{Map, checked_rows, row_count};
use crate::error::Invalid;
use crate::id::{StackId, StackIndex};
use crate::record::{Completion, Drop, DropReason, Sample, State};

/// Sample table.
#[derive(Archive, Serialize)]
pub(crate) struct Samples {
    /// Smallest weight.
    pub(crate) weight_base: u64,
    /// Usual distance of two samples on one CPU, in ns.
    pub(crate) period_ns: u64,
    pub(crate) rows: u32,
    /// Rows of `task_pid` and `task_tid`: the tasks of this batch in the order of their first sample.
    pub(crate) tasks: u32,
    pub(crate) task_pid: Vec<u8>,
    pub(crate) task_tid: Vec<u8>,
    pub(crate) cpu: Vec<u8>,
    pub(crate) id: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) task: Vec<u8>,
    pub(crate) event: Vec<u8>,
    pub(crate) run: Vec<u8>,
    pub(crate) weight: Vec<u8>,
    pub(crate) state: Vec<u8>,
    pub(crate) kernel: Vec<u8>,
    pub(crate) user_depth: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) time: Vec<u8>,
}

/// Completion table.
#[derive(Archive, Serialize)]
pub(crate) struct Completions {
    pub(crate) rows: u32,
    pub(crate) owner: Vec<u8>,
    pub(crate) time: Vec<u8>,
    pub(crate) state: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) user_depth: Vec<u8>,
}

/// Drop table.
#[derive(Archive, Serialize)]
pub(crate) struct Drops {
    pub(crate) rows: u32,
    pub(crate) reason: Vec<u8>,
    pub(crate) cpu: Vec<u8>,
    pub(crate) count: Vec<u8>,
    pub(crate) from: Vec<u8>,
    pub(crate) length: Vec<u8>,
}

/// What the next sample of a CPU is predicted from.
#[derive(Clone, Copy)]
struct Before {
    id: u64,
    time: u64,
}

impl Before {
    /// Before the first sample of `cpu`: IDs count from 1 on each CPU.
    fn first(cpu: u32, time: u64) -> Self {
        Self {
            id: u64::from(cpu) << 48,
            time,
        }
    }
}

/// Bit of the state column that says that the kernel half was cut.
const KERNEL_CUT: u8 = 8;

pub(crate) fn encode_samples(samples: &[Sample]) -> Result<Samples, Invalid> {
    let period_ns = usual_period(samples);
    let weight_base = samples.iter().map(|s| s.weight).min().unwrap_or(0);
    let mut before: Map<u32, Before> = Map::default();
    let mut tasks = Tasks::default();
    let (mut ids, mut times, mut task) = (Vec::new(), Vec::new(), Vec::new());
    let mut last_time = 0;
    for sample in samples {
        let known = before
            .entry(sample.cpu)
            .or_insert_with(|| Before::first(sample.cpu, last_time));
        ids.push(difference(known.id.wrapping_add(1), sample.id.0));
        times.push(difference(
            known.time.wrapping_add(period_ns),
            sample.time_ns,
        ));
        *known = Before {
            id: sample.id.0,
            time: sample.time_ns,
        };
        last_time = sample.time_ns;
        task.push(tasks.index(sample.pid, sample.tid));
    }
    Ok(Samples {
        weight_base,
        period_ns,
        rows: row_count(samples)?,
        tasks: row_count(&tasks.list)?,
        task_pid: pack_deltas32(tasks.list.iter().map(|&(pid, _)| pid)),
        task_tid: pack(tasks.list.iter().map(|&(pid, tid)| difference32(pid, tid))),
        cpu: pack_deltas32(samples.iter().map(|s| s.cpu)),
        id: pack(ids),
        owner: pack(samples.iter().map(|s| difference(s.id.0, s.owner.0))),
        task: pack(task),
        event: pack(samples.iter().map(|s| s.event)),
        run: pack(samples.iter().map(|s| s.run)),
        weight: pack(samples.iter().map(|s| s.weight - weight_base)),
        state: pack(
            samples
                .iter()
                .map(|s| s.state as u8 | if s.kernel_cut { KERNEL_CUT } else { 0 }),
        ),
        kernel: pack(samples.iter().map(|s| index_code(s.kernel.0))),
        user_depth: pack(samples.iter().map(|s| s.user_depth)),
        user: pack(samples.iter().map(|s| index_code(s.user.0))),
        time: pack(times),
    })
}

pub(crate) fn decode_samples(a: &ArchivedSamples) -> Result<Vec<Sample>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let tasks = checked_rows(a.tasks.to_native())?;
    let pids = unpack_deltas32(&a.task_pid, tasks)?;
    let tids: Vec<u32> = unpack_as(&a.task_tid, tasks)?;
    let cpus = unpack_deltas32(&a.cpu, rows)?;
    let ids = unpack(&a.id, rows)?;
    let owners = unpack(&a.owner, rows)?;
    let task: Vec<u32> = unpack_as(&a.task, rows)?;
    let events = unpack_as(&a.event, rows)?;
    let runs = unpack_as(&a.run, rows)?;
    let weights = unpack(&a.weight, rows)?;
    let states: Vec<u8> = unpack_as(&a.state, rows)?;
    let kernels = unpack_as(&a.kernel, rows)?;
    let depths = unpack_as(&a.user_depth, rows)?;
    let users = unpack_as(&a.user, rows)?;
    let times = unpack(&a.time, rows)?;
    let (period_ns, weight_base) = (a.period_ns.to_native(), a.weight_base.to_native());
    let mut before: Map<u32, Before> = Map::default();
    let mut last_time = 0;
    let mut samples = Vec::with_capacity(rows);
    for row in 0..rows {
        let cpu = cpus[row];
        let known = before
            .entry(cpu)
            .or_insert_with(|| Before::first(cpu, last_time));
        let id = apply(known.id.wrapping_add(1), ids[row]);
        let time_ns = apply(known.time.wrapping_add(period_ns), times[row]);
        *known = Before { id, time: time_ns };
        last_time = time_ns;
        let task = task[row] as usize;
        let (&pid, &tid) = pids
            .get(task)
            .zip(tids.get(task))
            .ok_or(Invalid::Reference)?;
        samples.push(Sample {
            id: StackId(id),
            owner: StackId(apply(id, owners[row])),
            time_ns,
            cpu,
            pid,
            tid: apply32(pid, tid),
            event: events[row],
            run: runs[row],
            weight: weight_base
                .checked_add(weights[row])
                .ok_or(Invalid::Value)?,
            state: state(states[row] & !KERNEL_CUT)?,
            kernel_cut: states[row] & KERNEL_CUT != 0,
            kernel: StackIndex(index_of(kernels[row])),
            user: StackIndex(index_of(users[row])),
            user_depth: depths[row],
        });
    }
    Ok(samples)
}

/// The tasks of a batch.
#[derive(Default)]
struct Tasks {
    list: Vec<(u32, u32)>,
    index: Map<(u32, u32), u32>,
    last: Option<((u32, u32), u32)>,
}

impl Tasks {
    fn index(&mut self, pid: u32, tid: u32) -> u32 {
        let task = (pid, tid);
        if let Some((last, index)) = self.last
            && last == task
        {
            return index;
        }
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let index = *self.index.entry(task).or_insert(next);
        if index == next {
            self.list.push(task);
        }
        self.last = Some((task, index));
        index
    }
}

/// The median distance of two samples on one CPU, over at most 256 of them.
fn usual_period(samples: &[Sample]) -> u64 {
    let mut last: Map<u32, u64> = Map::default();
    let mut distances: Vec<u64> = samples
        .iter()
        .filter_map(|s| Some(s.time_ns.wrapping_sub(last.insert(s.cpu, s.time_ns)?)))
        .take(256)
        .collect();
    let middle = distances.len() / 2;
    if distances.is_empty() {
        0
    } else {
        *distances.select_nth_unstable(middle).1
    }
}

fn state(number: u8) -> Result<State, Invalid> {
    State::ALL
        .get(usize::from(number))
        .copied()
        .ok_or(Invalid::Value)
}

pub(crate) fn encode_completions(completions: &[Completion]) -> Result<Completions, Invalid> {
    Ok(Completions {
        rows: row_count(completions)?,
        owner: pack_deltas(completions.iter().map(|c| c.owner.0)),
        time: pack_deltas(completions.iter().map(|c| c.time_ns)),
        state: pack(completions.iter().map(|c| c.state as u8)),
        user: pack(completions.iter().map(|c| index_code(c.user.0))),
        user_depth: pack(completions.iter().map(|c| c.user_depth)),
    })
}

pub(crate) fn decode_completions(a: &ArchivedCompletions) -> Result<Vec<Completion>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let owners = unpack_deltas(&a.owner, rows)?;
    let times = unpack_deltas(&a.time, rows)?;
    let states: Vec<u8> = unpack_as(&a.state, rows)?;
    let users: Vec<u32> = unpack_as(&a.user, rows)?;
    let depths: Vec<u32> = unpack_as(&a.user_depth, rows)?;
    (0..rows)
        .map(|row| {
            Ok(Completion {
                owner: StackId(owners[row]),
                time_ns: times[row],
                state: state(states[row])?,
                user: StackIndex(index_of(users[row])),
                user_depth: depths[row],
            })
        })
        .collect()
}

pub(crate) fn encode_drops(drops: &[Drop]) -> Result<Drops, Invalid> {
    Ok(Drops {
        rows: row_count(drops)?,
        reason: pack(drops.iter().map(|d| d.reason as u8)),
        cpu: pack(drops.iter().map(|d| index_code(d.cpu))),
        count: pack(drops.iter().map(|d| d.count)),
        from: pack_deltas(drops.iter().map(|d| d.from_ns)),
        length: pack(drops.iter().map(|d| difference(d.from_ns, d.to_ns))),
    })
}

pub(crate) fn decode_drops(a: &ArchivedDrops) -> Result<Vec<Drop>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let reasons = unpack(&a.reason, rows)?;
    let cpus: Vec<u32> = unpack_as(&a.cpu, rows)?;
    let counts = unpack(&a.count, rows)?;
    let froms = unpack_deltas(&a.from, rows)?;
    let lengths = unpack(&a.length, rows)?;
    (0..rows)
        .map(|row| {
            Ok(Drop {
                reason: drop_reason(narrow(reasons[row])?)?,
                cpu: index_of(cpus[row]),
                count: counts[row],
                from_ns: froms[row],
                to_ns: apply(froms[row], lengths[row]),
            })
        })
        .collect()
}

fn drop_reason(number: u8) -> Result<DropReason, Invalid> {
    Ok(match number {
        0 => DropReason::BufferFull,
        1 => DropReason::Contended,
        2 => DropReason::Unwritten,
        3 => DropReason::UserHalf,
        4 => DropReason::SideBand,
        _ => return Err(Invalid::Value),
    })
}
