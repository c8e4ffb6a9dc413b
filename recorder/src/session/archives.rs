//! What a session hands to its archives, and when one ends.

use std::io::{IsTerminal, stderr};
use std::mem;
use std::time::Duration;

use rawstack_format::record::{End, KernelModules, KernelSymbols, ModuleKind, Record, Run};

use super::Session;
use crate::assembler::Cut;
use crate::error::Result;
use crate::event::rate_text;
use crate::host::{monotonic_ns, wall_ns};
use crate::options::Growth;
use crate::summary::{Summary, Unwritten};
use crate::totals::Totals;
use crate::wake::Waker;

/// Rows of runs in one chunk.
const RUNS_PER_CHUNK: usize = 16 << 10;

impl Session<'_> {
    /// Write what stands at the beginning of each archive.
    pub(super) fn send_preamble(&mut self) -> Result<()> {
        let modules: Vec<_> = self.assembler.world.kernel.modules().cloned().collect();
        if !modules.is_empty() {
            let record = Record::KernelModules(KernelModules { modules });
            self.output.add_preamble(&record)?;
        }
        if let Some(vdso) = self.assembler.world.kernel.vdso.take() {
            self.output.add_preamble(&Record::Vdso(vdso))?;
        }
        if self.options.all_kernel_symbols {
            for part in self.assembler.world.kernel.all_symbols() {
                self.output.add_preamble(&Record::KernelSymbols(part))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, record: &Record) -> Result<()> {
        self.output.send(record, self.counters)
    }

    /// Write what was read of JIT maps since the last call, as far as there is room.
    pub(super) fn read_jit_maps(&mut self) -> Result<()> {
        if self.assembler.is_in_gap() {
            return Ok(()); // they are read on when the disk takes something again
        }
        let room = self.output.room();
        let processes = &mut self.assembler.world.processes;
        for record in self.jit.turn(processes, room.map(|room| room / 2)) {
            self.send(&record)?;
        }
        Ok(())
    }

    /// Write all that is left of them: of some the whole, where `anew`.
    fn read_jit_maps_to_end(&mut self, anew: bool) -> Result<()> {
        let is_short = self.assembler.is_in_gap();
        let room = if is_short {
            Some(0)
        } else {
            self.output.room().map(|room| room / 2)
        };
        let processes = &mut self.assembler.world.processes;
        if anew {
            self.jit.begin_anew();
        }
        for record in self.jit.read_to_end(processes, room) {
            self.send(&record)?;
        }
        Ok(())
    }

    /// Hand over the batches that are closed.
    pub(super) fn send_cuts(&mut self) -> Result<()> {
        for cut in self.assembler.take_cuts() {
            if cut.starts_epoch && cut.batch.epoch > 0 {
                self.recording.epoch = cut.batch.epoch;
                self.output.start_epoch(&self.recording)?;
            }
            for part in self.symbols(cut.symbols) {
                self.send(&part)?;
            }
            if !cut.copies.is_empty() {
                self.send(&Record::StackCopies(cut.copies))?;
            }
            self.counters = cut.counters;
            self.send(&Record::Batch(cut.batch))?;
        }
        self.mind_room();
        Ok(())
    }

    /// Rows of kernel symbols as records.
    fn symbols(&self, rows: Vec<u32>) -> Vec<Record> {
        if rows.is_empty() || self.options.all_kernel_symbols {
            return Vec::new();
        }
        // A part's symbols fit a chunk, whatever their number: numbered as parts only where they are all.
        let parts = self.assembler.world.kernel.symbols_record(rows).split();
        let selection = |part| {
            Record::KernelSymbols(KernelSymbols {
                part: 0,
                parts: 0,
                ..part
            })
        };
        parts.into_iter().map(selection).collect()
    }

    /// Keep no more than there is room for, in memory and in the archive.
    pub(super) fn mind_room(&mut self) {
        let was_in_gap = self.assembler.is_in_gap();
        let room = self.output.room();
        if let Some(room) = room {
            self.assembler.set_room(room);
        }
        self.is_full =
            matches!(self.options.growth, Growth::MaxSize(_)) && self.output.is_at_its_size();
        self.tell_news();
        let may_grow = !matches!(self.options.growth, Growth::MaxSize(_)) || room != Some(0);
        let has_memory = !self.output.is_full(was_in_gap);
        if may_grow && has_memory && !self.is_hurried {
            self.assembler.end_gap();
            if mem::take(&mut self.is_gap_told) {
                self.say("samples are kept again");
            }
            return;
        }
        self.assembler.start_gap();
        // At the end a gap is closed to be accounted for, and may open anew: that is no news.
        if !has_memory && !mem::replace(&mut self.is_gap_told, true) {
            self.say(
                "memory for what waits to be written is used up (--max-memory); samples are counted and not kept",
            );
        }
    }

    fn say(&self, words: &str) {
        if !self.options.quiet {
            eprintln!("rawstack-record: {words}");
        }
    }

    /// Hand over the batch that is being filled, if anything is in it.
    pub(super) fn write(&mut self) -> Result<()> {
        if self.assembler.has_rows() {
            self.assembler.cut();
            self.send_cuts()?;
        }
        self.assembler.forget();
        Ok(())
    }

    /// Begin the next archive, or the next part of what is held, when it is time.
    pub(super) fn mind_growth(&mut self, waker: &Waker) -> Result<()> {
        if matches!(self.options.growth, Growth::Rotate { .. })
            && !self.assembler.is_in_gap()
            && waker.take_request()
        {
            return self.rotate();
        }
        if !self.output.is_flight() {
            return self.rotate_if_due();
        }
        if self.output.wants_epoch(monotonic_ns()) && self.assembler.has_rows() {
            self.assembler.end_epoch();
            self.send_cuts()?;
        }
        if self.output.can_dump() && waker.take_request() {
            self.dump(0, -1)?;
        }
        Ok(())
    }

    /// Begin the next archive when it is time. Not within a gap: nothing can be written, and so nothing be ended.
    pub(super) fn rotate_if_due(&mut self) -> Result<()> {
        if self.output.is_to_rotate(monotonic_ns()) && !self.assembler.is_in_gap() {
            self.rotate()?;
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<()> {
        let totals = self.assembler.end_archive();
        self.send_cuts()?;
        let end = end(&totals, totals.ids(), -1);
        let carried = self.assembler.first_ns();
        let start_ns = carried.map_or(end.end_ns, |first| first.min(end.end_ns));
        self.recording.start_ns = start_ns;
        self.recording.start_wall_ns = end.end_wall_ns - (end.end_ns - start_ns);
        self.recording.epoch = 0;
        self.output.rotate(end, &self.recording)?;
        self.counters = Default::default();
        self.send_runs(Vec::new())?;
        self.jit.begin_anew();
        // What was carried over has waited long enough to be written.
        self.write()
    }

    /// Write what the flight recorder holds. `missing`: see [`dump`](crate::output::Output::dump).
    fn dump(&mut self, missing: u64, exit: i32) -> Result<()> {
        // What was read before is as old as the samples around it, or gone with them.
        self.read_jit_maps_to_end(true)?;
        self.write()?;
        let cut = self.assembler.peek();
        let mut last = Vec::new();
        if !cut.batch.samples.is_empty() {
            last = self.last_records(cut);
        }
        last.extend(run_records(&self.run_rows));
        let end = End {
            reserved: missing,
            ..end(&Totals::default(), 0, exit)
        };
        self.output.dump(&self.recording, &last, end)
    }

    /// The rows that wait, as records.
    fn last_records(&mut self, cut: Cut) -> Vec<Record> {
        let mut last = Vec::new();
        if cut.starts_epoch {
            let mut recording = self.recording.clone();
            recording.epoch = cut.batch.epoch;
            last.push(Record::Recording(recording));
        }
        last.extend(self.symbols(cut.symbols));
        if !cut.copies.is_empty() {
            last.push(Record::StackCopies(cut.copies));
        }
        last.push(Record::Batch(cut.batch));
        last
    }

    /// A run began or ended.
    pub(super) fn note_run(&mut self, row: Run) -> Result<()> {
        if row.end_ns == 0 {
            self.assembler.start_run(row.start_ns);
            let (number, runs) = (row.run + 1, self.options.runs);
            if runs > 1 && !self.options.quiet && stderr().is_terminal() {
                eprint!("\rrun {number} of {runs}");
                if number == runs {
                    eprintln!();
                }
            }
        }
        self.send_runs(vec![row])
    }

    /// Write rows of runs: `changed`, or all of them.
    fn send_runs(&mut self, changed: Vec<Run>) -> Result<()> {
        let is_known = |row: &&mut Run| changed.first().is_some_and(|first| first.run == row.run);
        match (self.run_rows.last_mut().filter(is_known), changed.first()) {
            (Some(row), Some(changed)) => *row = changed.clone(),
            (_, first) => self.run_rows.extend(first.cloned()),
        }
        let rows = if changed.is_empty() {
            self.run_rows.clone()
        } else {
            changed
        };
        if self.output.is_flight() {
            return Ok(());
        }
        run_records(&rows).try_for_each(|record| self.send(&record))
    }

    /// Say what there is to say of writing.
    pub(super) fn tell_news(&self) {
        if let Some(news) = self.output.news() {
            self.say(&news);
        }
    }

    /// End the archive, and sum up. A signal, or one more, hurries it.
    pub(crate) fn finish(
        mut self,
        duration: Duration,
        mode: &'static str,
        command_status: Option<i32>,
        waker: &Waker,
    ) -> Result<Summary> {
        if !self.output.is_flight() {
            self.read_jit_maps_to_end(false)?;
        }
        self.assembler.end_gap();
        self.write()?;
        let reserved = self.stream.counts()?.reserved;
        let totals = self.assembler.totals();
        let exit = command_status.unwrap_or(-1);
        if self.output.is_flight() {
            self.dump(reserved.wrapping_sub(totals.ids()), exit)?;
        } else {
            // What no archive before this one accounts for is this one's, whether it has it or not.
            let own = self.assembler.archive_totals().clone();
            let before = totals.ids() - own.ids();
            self.send(&Record::End(end(&own, reserved.wrapping_sub(before), exit)))?;
        }
        let limited_by_size = self.is_full;
        let ending = self.output.finish(|| waker.is_ending())?;
        let world = &self.assembler.world;
        let (processes, threads) = world.processes.sampled();
        let has_no_id = |module: &&rawstack_format::record::Module| {
            module.kind == ModuleKind::Elf && module.build_id.is_none()
        };
        let rates: Vec<_> = self.recording.events.iter().map(rate_text).collect();
        Ok(Summary {
            path: self.options.output.clone(),
            duration,
            mode,
            mode_reason: self.recording.mode_reason,
            event: rates.join(", "),
            samples: totals.samples,
            reserved,
            states: totals.states,
            drops: totals.drops,
            copies: totals.copies,
            copy_addresses_only: self.options.copy_addresses_only,
            processes,
            threads,
            modules: usize::try_from(world.modules.met()).unwrap_or(usize::MAX),
            without_build_id: world
                .modules
                .iter()
                .filter(has_no_id)
                .map(|module| module.path.clone())
                .collect(),
            unread: world.helper.account().to_string(),
            targets_lost: self.targets_lost,
            kernel_hidden: world.kernel.is_hidden(),
            jit: self.jit.counts(),
            limited_by_size,
            is_numbered: ending.is_numbered,
            archives: ending.written.archives,
            bytes: ending.written.bytes,
            written: ending.written.samples,
            start_ns: self.start_ns,
            run_error: self.run_error.map(|error| error.to_string()),
            unwritten: Unwritten {
                why: ending.written.trouble,
                left: ending.left,
                unsynced: ending.written.unsynced,
            },
            command_status,
        })
    }
}

/// Rows of runs in records that each fit a chunk.
fn run_records(rows: &[Run]) -> impl Iterator<Item = Record> {
    rows.chunks(RUNS_PER_CHUNK)
        .map(|rows| Record::Runs(rows.to_vec()))
}

/// The end of an archive with these totals.
fn end(totals: &Totals, reserved: u64, exit: i32) -> End {
    End {
        end_ns: monotonic_ns(),
        end_wall_ns: wall_ns(),
        reserved,
        states: totals.states,
        exit,
    }
}
