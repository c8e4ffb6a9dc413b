//! Samples of perf into rows: whose they are, and where in which code each of their frames is.

use std::io::Write;

use linux_perf_event_reader::{SampleFormat, SampleRecord};
use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackId};
use rawstack_format::record::{
    Frame, FrameKind, Module, ModuleKind, Process, Sample, State, Thread,
};

use super::attributes::Weight;
use super::convert::{Converter, Taken};
use super::halves::Halves;
use crate::error::Result;

/// Frames of a stack when nothing says how many there may be.
const DEFAULT_DEPTH: usize = 127;
/// What of a stack is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    No,
    Kernel,
    User,
}

impl<W: Write> Converter<'_, W> {
    pub(super) fn sample(&mut self, sample: &SampleRecord<'_>, event: usize) -> Taken {
        let Some((attribute, Some(number))) = self
            .attributes
            .get(event)
            .zip(self.events.get(event).copied())
        else {
            self.left.placeless += 1;
            return Ok(());
        };
        let format = attribute.attr.sample_format;
        let depth = match attribute.attr.sample_max_stack {
            0 => DEFAULT_DEPTH,
            depth => depth.into(),
        };
        let weight = match attribute.weight() {
            Weight::Stated => sample.period.unwrap_or(1),
            Weight::Fixed(period) => period.get(),
            Weight::One => 1,
        };
        let halves = Halves::of(sample, self.facts.arch.as_deref());
        if halves.is_guest {
            self.left.guests += 1;
            return Ok(());
        }
        let copied = sample
            .user_stack
            .is_some_and(|(bytes, _)| !bytes.is_empty());
        self.left.stack_copies += u64::from(copied);
        self.left.branches += u64::from(format.contains(SampleFormat::BRANCH_STACK));
        let cut = if halves.entries >= depth || halves.is_cut {
            if halves.user.is_empty() {
                Cut::Kernel
            } else {
                Cut::User
            }
        } else if copied || halves.is_deferred {
            Cut::User
        } else {
            Cut::No
        };
        let row = Sample {
            time_ns: self.time,
            cpu: sample.cpu.unwrap_or(0),
            pid: sample.pid.unwrap_or(0).cast_unsigned(),
            tid: sample.tid.unwrap_or(0).cast_unsigned(),
            event: number,
            weight,
            state: if cut == Cut::No {
                State::Complete
            } else {
                State::Truncated
            },
            kernel_cut: cut == Cut::Kernel,
            user_depth: if cut == Cut::User { u32::MAX } else { 0 },
            ..Sample::default()
        };
        Ok(self.add(row, &halves)?)
    }

    fn add(&mut self, mut row: Sample, halves: &Halves) -> Result<()> {
        if self.builder()?.begin_sample()? {
            self.frames.clear();
        }
        let next = self.next_ids.entry(row.cpu).or_default();
        *next += 1;
        row.id = StackId(u64::from(row.cpu) << 48 | *next);
        row.owner = row.id;
        self.name(row.pid, row.tid)?;
        let kernel = self.half(&halves.kernel, None)?;
        let user = self.half(&halves.user, Some(row.pid))?;
        let builder = self.builder()?;
        row.kernel = builder.stack(&kernel)?;
        row.user = builder.stack(&user)?;
        builder.sample(row)?;
        self.samples += 1;
        Ok(())
    }

    /// Say whose sample it is.
    fn name(&mut self, pid: u32, tid: u32) -> Result<()> {
        let process = self.processes.get(&pid).cloned().unwrap_or_default();
        let thread = self.threads.get(&tid).filter(|thread| thread.of == pid);
        let thread = thread.cloned().unwrap_or_else(|| process.clone());
        let builder = self.builder()?;
        builder.process(&Process {
            pid,
            parent: process.of,
            start_ns: process.start,
            since_ns: process.since,
            comm: process.comm,
            ..Process::default()
        })?;
        builder.thread(&Thread {
            pid,
            tid,
            start_ns: thread.start,
            since_ns: thread.since,
            comm: thread.comm,
        })
    }

    /// The frames of one half; of the kernel's without a process.
    fn half(&mut self, addresses: &[u64], pid: Option<u32>) -> Result<Vec<FrameIndex>> {
        let space = pid.map_or(0, |pid| {
            self.spaces.of(pid).map_or(u32::MAX, |space| space.number)
        });
        let mut frames = Vec::with_capacity(addresses.len());
        for (depth, &address) in addresses.iter().enumerate() {
            let is_leaf = depth == 0;
            let key = (space, is_leaf, address);
            let frame = match self.frames.get(&key) {
                Some(&frame) => frame,
                None => {
                    let frame = match pid {
                        Some(pid) => self.user_frame(pid, is_leaf, address)?,
                        None => self.kernel_frame(is_leaf, address)?,
                    };
                    self.frames.insert(key, frame);
                    frame
                }
            };
            frames.push(frame);
        }
        Ok(frames)
    }

    fn user_frame(&mut self, pid: u32, is_leaf: bool, address: u64) -> Result<FrameIndex> {
        let kind = if is_leaf {
            FrameKind::UserLeaf
        } else {
            FrameKind::UserCaller
        };
        let place = self.spaces.of(pid).and_then(|space| space.find(address));
        let known = place.and_then(|place| {
            let (module, mapping) = self.mappings.get(place.mapping as usize)?;
            let row = self.modules.rows.get(*module as usize)?;
            Some((place, *module, mapping.clone(), row.clone()))
        });
        let Some((place, number, mut mapping, row)) = known else {
            return self.builder()?.frame(Frame {
                kind,
                address: Addr(address),
                module: ModuleIndex::NONE,
                offset: FileOffset(address),
            });
        };
        let is_made = row.kind == ModuleKind::Anonymous;
        self.left.made_code += u64::from(is_made);
        self.left.no_build_id += u64::from(row.kind == ModuleKind::Elf && row.build_id.is_none());
        let builder = self.builder()?;
        let module = builder.module(number, &row)?;
        mapping.module = module;
        builder.mapping(place.mapping, &mapping)?;
        builder.frame(Frame {
            kind,
            address: Addr(address),
            module,
            offset: FileOffset(if is_made { address } else { place.offset }),
        })
    }

    fn kernel_frame(&mut self, is_leaf: bool, address: u64) -> Result<FrameIndex> {
        let kind = if is_leaf {
            FrameKind::KernelLeaf
        } else {
            FrameKind::KernelCaller
        };
        self.left.kernel_frames += 1;
        let nowhere = Module {
            kind: ModuleKind::KernelModule,
            path: "unknown".to_owned(),
            ..Module::default()
        };
        let (row, offset) = match self.kernel.find(address) {
            Some(place) => (place.module.clone(), place.offset),
            // A distance from the image would tell where the image is.
            None => (nowhere, 0),
        };
        let number = self.modules.number(&row, self.code);
        let builder = self.builder()?;
        let module = builder.module(number, &row)?;
        builder.frame(Frame {
            kind,
            address: Addr(0),
            module,
            offset: FileOffset(offset),
        })
    }
}
