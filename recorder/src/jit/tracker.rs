//! Which process's files were read up to where, and when they are read again. Opens nothing itself.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rawstack_format::record::{JitMap, Record};

use super::counts::JitCounts;
use super::request::{Refusal, Source};
use super::track::{AGAIN, Track};
use super::worker::{Answer, Worker};
use crate::helper::{Helper, JitReader};
use crate::process::{JitChange, JitProgram, Processes};

/// How long a piece may take to come. Whoever reads has a deadline of its own, far below.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer usually takes.
const ANSWER: Duration = Duration::from_millis(20);
/// How long a program counts as running after it was seen to.
const AWAKE: Duration = Duration::from_secs(2);
/// How long all that is left may take at the end.
const LAST: Duration = Duration::from_secs(1);
/// Bytes that are kept of all files.
const TOTAL_MOST: u64 = 2 << 30;
/// Processes that are followed at once, and jitdumps of one.
const MOST_PROCESSES: usize = 4096;
const MOST_DUMPS: usize = 4;

/// A program of a process that runs code of its own making.
#[derive(Debug)]
struct Tracked {
    program: JitProgram,
    tracks: Vec<Track>,
    ended_ns: Option<u64>,
    /// When it was last seen to run.
    ran: Instant,
}

impl Tracked {
    fn add_dumps(&mut self, paths: Vec<Vec<u8>>) {
        for path in paths {
            let source = Source::JitDump(path);
            let is_known = self.tracks.iter().any(|track| track.source == source);
            if !is_known && self.tracks.len() <= MOST_DUMPS {
                self.tracks.push(Track::new(source));
            }
        }
    }
}

/// All such programs, by process.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// None: no more maps can be read.
    worker: Option<Worker>,
    tracked: HashMap<u32, Tracked>,
    queue: VecDeque<(u32, usize)>,
    /// What is being read, since when nothing came. An index of none: nobody wants it any more.
    running: Option<(u32, usize, Instant)>,
    counts: JitCounts,
    /// Bytes that may still be written now.
    room: u64,
}

impl Tracker {
    /// No process known yet. Its questions go to a worker of their own of `helper`.
    pub(crate) fn new(helper: &Helper) -> Self {
        let connection = helper.connect().ok();
        let reader = connection.map(JitReader::new);
        let worker = reader.and_then(|reader| Worker::start(Box::new(reader)));
        Self {
            worker,
            tracked: HashMap::new(),
            queue: VecDeque::new(),
            running: None,
            counts: JitCounts::default(),
            room: u64::MAX,
        }
    }

    /// Take in what happened to processes and what was read, ask for more: what is to be written, of `room` bytes at
    /// most. Never waits.
    pub(crate) fn turn(&mut self, processes: &mut Processes, room: Option<u64>) -> Vec<Record> {
        let now = Instant::now();
        self.room = room.unwrap_or(u64::MAX);
        let mut records = Vec::new();
        for change in processes.take_jit_changes() {
            self.change(change, processes, now, &mut records);
        }
        self.take_answers(now, &mut records);
        self.ask(now);
        records
    }

    /// When to take the next [`turn`](Self::turn), so that what is read is not much older than the samples it names; `None`
    /// where no code of that sort runs.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        let now = Instant::now();
        if self.running.is_some() || !self.queue.is_empty() {
            return Some(now + ANSWER);
        }
        let is_awake = |tracked: &Tracked| now.duration_since(tracked.ran) < AWAKE;
        let mut awake = self.tracked.values().filter(|tracked| is_awake(tracked));
        let reads = |tracked: &Tracked| tracked.tracks.iter().any(|track| !track.is_done);
        awake.any(reads).then(|| now + AGAIN)
    }

    /// Read everything once more, for a second at most.
    pub(crate) fn read_to_end(
        &mut self,
        processes: &mut Processes,
        room: Option<u64>,
    ) -> Vec<Record> {
        let start = Instant::now();
        let mut records = self.turn(processes, room);
        self.tracks().for_each(Track::hurry);
        let mut left = room;
        while self.worker.is_some() && self.tracks().any(|track| track.is_open(start)) {
            if start.elapsed() > LAST {
                break;
            }
            records.extend(self.turn(processes, left));
            let held: usize = records.iter().map(size).sum();
            left = room.map(|room| room.saturating_sub(held as u64));
            thread::sleep(Duration::from_millis(1));
        }
        for track in self.tracks().filter(|track| track.is_open(start)) {
            (track.is_cut, track.refusal) = (true, track.refusal.or(Some(Refusal::Slow)));
        }
        records
    }

    /// An archive begins: all that is known is told again.
    pub(crate) fn begin_anew(&mut self) {
        self.tracks().for_each(Track::begin_anew);
    }

    /// What was read up to now, and what was not.
    pub(crate) fn counts(&self) -> JitCounts {
        let mut counts = self.counts.clone();
        for tracked in self.tracked.values() {
            counts.add(&tracked.tracks);
        }
        counts
    }

    fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        let tracked = self.tracked.values_mut();
        tracked.flat_map(|tracked| &mut tracked.tracks)
    }

    fn change(
        &mut self,
        change: JitChange,
        processes: &Processes,
        now: Instant,
        records: &mut Vec<Record>,
    ) {
        match change {
            JitChange::Ran(pid) => {
                let Some(program) = processes.jit_program(pid) else {
                    return;
                };
                match self.tracked.get_mut(&pid) {
                    Some(old) if old.program.number == program.number => {
                        old.ran = now;
                        return;
                    }
                    Some(_) => self.end(pid, program.since_ns, records),
                    None => {}
                }
                self.begin(program, processes.jit_dumps(pid), now);
            }
            JitChange::Dumped(pid) => {
                if let Some(tracked) = self.tracked.get_mut(&pid) {
                    tracked.add_dumps(processes.jit_dumps(pid));
                }
            }
            JitChange::Ended {
                pid,
                program,
                time_ns,
            } => {
                let tracked = self.tracked.get_mut(&pid);
                if let Some(tracked) = tracked.filter(|tracked| tracked.program.number == program) {
                    tracked.ended_ns = Some(time_ns);
                    tracked.tracks.iter_mut().for_each(Track::hurry);
                }
            }
        }
    }

    fn begin(&mut self, program: JitProgram, dumps: Vec<Vec<u8>>, now: Instant) {
        let mut tracked = Tracked {
            ended_ns: program.ended_ns,
            tracks: vec![Track::new(Source::PerfMap)],
            ran: now,
            program,
        };
        tracked.add_dumps(dumps);
        if self.worker.is_none() || self.tracked.len() >= MOST_PROCESSES {
            tracked.tracks.truncate(1);
            tracked
                .tracks
                .iter_mut()
                .for_each(|track| track.refusal = Some(Refusal::Slow));
            self.counts.add(&tracked.tracks);
            return;
        }
        self.tracked.insert(tracked.program.pid, tracked);
    }

    /// A program will give nothing more: what was said of it holds up to `time_ns`.
    fn end(&mut self, pid: u32, time_ns: u64, records: &mut Vec<Record>) {
        let Some(tracked) = self.tracked.remove(&pid) else {
            return;
        };
        self.counts.add(&tracked.tracks);
        let read = tracked.tracks.iter().filter(|track| track.kept > 0);
        records.extend(read.map(|track| {
            Record::JitMap(JitMap {
                pid,
                kind: track.source.kind(),
                time_ns,
                ..JitMap::default()
            })
        }));
        self.queue.retain(|(queued, _)| *queued != pid);
        match &mut self.running {
            Some((running, index, _)) if *running == pid => *index = usize::MAX,
            _ => {}
        }
        if let Some(worker) = &self.worker {
            worker.forget(pid);
        }
    }

    /// Whether all is read that there will ever be.
    fn end_if_done(&mut self, pid: u32, records: &mut Vec<Record>) {
        let Some(tracked) = self.tracked.get(&pid) else {
            return;
        };
        if let Some(ended_ns) = tracked.ended_ns
            && tracked.tracks.iter().all(|track| track.is_done)
        {
            self.end(pid, ended_ns, records);
        }
    }

    fn take_answers(&mut self, now: Instant, records: &mut Vec<Record>) {
        while let Some((pid, index, since)) = self.running {
            let Some(answer) = self.worker.as_ref().and_then(Worker::answer) else {
                if now.duration_since(since) > PATIENCE {
                    self.give_up(pid, index);
                    self.end_if_done(pid, records);
                }
                return;
            };
            let is_last = answer.1;
            self.running = (!is_last).then_some((pid, index, now));
            self.take_answer(pid, index, answer, records);
            self.end_if_done(pid, records);
            if is_last {
                self.ask(now);
            }
        }
    }

    fn take_answer(
        &mut self,
        pid: u32,
        index: usize,
        (answer, is_last): Answer,
        records: &mut Vec<Record>,
    ) {
        let Some(tracked) = self.tracked.get_mut(&pid) else {
            return;
        };
        let is_over = tracked.ended_ns.is_some();
        let Some(track) = tracked.tracks.get_mut(index) else {
            return;
        };
        let room = self.room.min(TOTAL_MOST.saturating_sub(self.counts.bytes));
        match answer {
            Ok(piece) if piece.bytes.len() as u64 > room => {
                (track.is_cut, track.is_done) = (true, true);
            }
            Ok(piece) => {
                if let Some(map) = track.take(pid, piece) {
                    self.room = self.room.saturating_sub(map.bytes.len() as u64);
                    self.counts.bytes += map.bytes.len() as u64;
                    records.push(Record::JitMap(map));
                }
            }
            Err(refusal) => track.refusal = Some(refusal),
        }
        if is_last {
            // What was asked for before it was over is read once more.
            track.is_done |= is_over && !track.is_hurried();
            track.end_reading();
        }
    }

    /// Nothing comes from the thread any more: there will be no more maps.
    fn give_up(&mut self, pid: u32, index: usize) {
        (self.running, self.worker) = (None, None);
        let tracked = self.tracked.get_mut(&pid);
        if let Some(track) = tracked.and_then(|tracked| tracked.tracks.get_mut(index)) {
            (track.refusal, track.is_cut) = (Some(Refusal::Slow), true);
        }
        self.tracks().for_each(|track| track.is_done = true);
    }

    fn ask(&mut self, now: Instant) {
        for (&pid, tracked) in &mut self.tracked {
            for (index, track) in tracked.tracks.iter_mut().enumerate() {
                if !track.is_done && !track.is_queued && track.is_due(now, tracked.ran) {
                    track.is_queued = true;
                    self.queue.push_back((pid, index));
                }
            }
        }
        while self.running.is_none()
            && let Some((pid, index)) = self.queue.pop_front()
        {
            let Some(worker) = &self.worker else { return };
            let Some(tracked) = self.tracked.get_mut(&pid) else {
                continue;
            };
            if let Some(track) = tracked.tracks.get_mut(index) {
                let request = track.begin_reading(now, &tracked.program);
                worker.read(request, track.most());
                self.running = Some((pid, index, now));
            }
        }
    }
}

fn size(record: &Record) -> usize {
    match record {
        Record::JitMap(map) => map.bytes.len(),
        _ => 0,
    }
}
