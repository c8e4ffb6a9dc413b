//! One file of one program: how far it was read, and how much of it is kept.

use std::time::{Duration, Instant};

use rawstack_format::record::JitMap;

use super::eraser::CodeEraser;
use super::request::{FileId, Piece, Refusal, Request, Source};
use super::worker::tail_of;
use crate::process::JitProgram;

/// How soon a file is read again when its process ran since: an address may hold another function by now, and between
/// two readings nobody can tell when that came.
pub(super) const AGAIN: Duration = Duration::from_millis(200);
/// Bytes of one piece: fits a chunk.
const PIECE: usize = 256 << 10;
/// Length up to which a perf map is read, and a jitdump.
const MAP_MOST: u64 = 64 << 20;
const DUMP_MOST: u64 = 256 << 20;
/// Bytes of one file that are kept over time, in lengths as above: it may be written anew again and again.
const REWRITTEN: u64 = 2;

/// A file of a program.
#[derive(Debug)]
pub(super) struct Track {
    /// Which.
    pub(super) source: Source,
    file: Option<FileId>,
    position: u64,
    tail: Vec<u8>,
    eraser: CodeEraser,
    /// When its last reading was asked for; none: it is to be read at once.
    read_at: Option<Instant>,
    /// That reading has not ended yet.
    is_reading: bool,
    /// What that reading gives belongs to the archive before.
    is_void: bool,
    /// Bytes of it in the archive.
    pub(super) kept: u64,
    /// Why the last reading gave nothing.
    pub(super) refusal: Option<Refusal>,
    /// Not all of it is in the archive.
    pub(super) is_cut: bool,
    /// It waits to be read.
    pub(super) is_queued: bool,
    /// It is not read any more.
    pub(super) is_done: bool,
}

impl Track {
    /// A file of which nothing is read.
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            file: None,
            position: 0,
            tail: Vec::new(),
            eraser: CodeEraser::default(),
            read_at: None,
            is_reading: false,
            is_void: false,
            kept: 0,
            refusal: None,
            is_cut: false,
            is_queued: false,
            is_done: false,
        }
    }

    /// Length up to which it is read.
    pub(super) fn most(&self) -> u64 {
        match self.source {
            Source::PerfMap => MAP_MOST,
            Source::JitDump(_) => DUMP_MOST,
        }
    }

    /// Whether it should be read now, when its process was last seen to run at `ran`.
    pub(super) fn is_due(&self, now: Instant, ran: Instant) -> bool {
        let Some(read) = self.read_at else {
            return true;
        };
        ran > read && now.duration_since(read) >= AGAIN
    }

    /// Have it read once more, as soon as can be.
    pub(super) fn hurry(&mut self) {
        self.read_at = None;
    }

    /// Whether it is still to be read once more.
    pub(super) fn is_hurried(&self) -> bool {
        self.read_at.is_none()
    }

    /// Whether a reading that was asked for at `since` or later has still to end.
    pub(super) fn is_open(&self, since: Instant) -> bool {
        let is_read = self.read_at.is_some_and(|read| read >= since) && !self.is_reading;
        !self.is_done && !is_read
    }

    /// Nothing of it is in the archive that begins now.
    pub(super) fn begin_anew(&mut self) {
        self.file = None;
        self.position = 0;
        self.kept = 0;
        self.is_done = false;
        self.is_void = self.is_reading;
        self.hurry();
    }

    /// The reading that was asked for is over.
    pub(super) fn end_reading(&mut self) {
        (self.is_reading, self.is_void) = (false, false);
    }

    /// It is being read.
    pub(super) fn begin_reading(&mut self, now: Instant, program: &JitProgram) -> Request {
        self.is_queued = false;
        self.read_at = Some(now);
        self.is_reading = true;
        Request {
            pid: program.pid,
            start_ns: program.start_ns,
            program_ns: program.since_ns,
            source: self.source.clone(),
            file: self.file,
            position: self.position,
            tail: self.tail.clone(),
            most: PIECE,
        }
    }

    /// Take in a piece: what is to be written of it, if anything is.
    pub(super) fn take(&mut self, pid: u32, piece: Piece) -> Option<JitMap> {
        if self.is_void {
            return None;
        }
        let Piece {
            file,
            time_ns,
            length,
            position,
            mut bytes,
        } = piece;
        let is_anew = self.file != Some(file) || position != self.position;
        if is_anew {
            self.eraser = CodeEraser::default();
            self.tail.clear();
        }
        let more = bytes.len() as u64;
        (self.file, self.refusal) = (Some(file), None);
        self.position = position + more;
        if more > 0 {
            self.tail = tail_of(&bytes);
        }
        let is_too_much = self.kept + more > REWRITTEN * self.most();
        self.is_cut |= length > self.most() || is_too_much;
        self.is_done |= self.position >= self.most() || is_too_much;
        if is_too_much || (more == 0 && !(is_anew && self.kept > 0)) {
            return None;
        }
        self.kept += more;
        if matches!(self.source, Source::JitDump(_)) {
            self.eraser.erase(&mut bytes);
        }
        Some(JitMap {
            pid,
            kind: self.source.kind(),
            time_ns,
            position,
            bytes,
        })
    }
}
