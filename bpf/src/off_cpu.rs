//! Time blocked: the programs of `src/c/offcpu.bpf.h`, from start to end. Knows nothing of their events.

use std::fmt;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{Iter, Link};

use crate::clock::monotonic_ns;
use crate::error::{Error, Result};
use crate::kernel;
use crate::programs::{Config, Mode, suffix};
use crate::skel::{OpenRecorderSkel, RecorderSkel};

/// `BPF_F_NO_PREALLOC` of `include/uapi/linux/bpf.h`.
const NO_PREALLOC: u32 = 1;
/// Threads whose waits are kept at once where memory for all of them is taken at the start: a kilobyte each.
const PREALLOCATED: u32 = 16 << 10;
/// Events that are sent at once for tasks that are still blocked: well below a ring buffer's worth.
const UNENDED: usize = 512;

/// Time blocked as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// Number of the event in the recording.
    pub number: u32,
    /// Waits shorter than this are none, in nanoseconds.
    pub min_ns: u64,
}

/// The programs, running.
pub(crate) struct Waits {
    _links: Vec<Link>,
    /// Opened at the start: later there may be no right to.
    unended: Iter,
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").finish_non_exhaustive()
    }
}

fn program_name(mode: Mode) -> String {
    format!("off_cpu_{}", suffix(mode))
}

/// Tell an object that is not loaded yet.
pub(crate) fn configure(open: &mut OpenRecorderSkel<'_>, config: &Config) -> Result<()> {
    let Some(off_cpu) = config.off_cpu else {
        return Ok(());
    };
    let needed = [
        program_name(config.mode),
        "off_cpu_begin".to_owned(),
        "off_cpu_end".to_owned(),
        "off_cpu_exec".to_owned(),
        "off_cpu_exit".to_owned(),
    ];
    for mut program in open.open_object_mut().progs_mut() {
        if needed.iter().any(|name| program.name() == name.as_str()) {
            program.set_autoload(true);
        }
    }
    let (flags, threads) = if kernel::allocates_anywhere() {
        (NO_PREALLOC, config.max_threads)
    } else {
        (0, PREALLOCATED.min(config.max_threads))
    };
    let waits = &mut open.maps.waits;
    waits
        .set_max_entries(threads)
        .and_then(|()| waits.set_map_flags(flags))
        .map_err(|error| Error::Map {
            map: "waits",
            error,
        })?;
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.off_cpu_cfg.min_ns = off_cpu.min_ns;
        data.off_cpu_cfg.event = off_cpu.number;
    }
    Ok(())
}

impl Waits {
    /// Start: first what sees tasks block and run, then a look at those that are blocked already.
    pub(crate) fn start(skel: &RecorderSkel<'_>, mode: Mode) -> Result<Self> {
        let exec = attach(skel, "off_cpu_exec")?;
        let exit = attach(skel, "off_cpu_exit")?;
        let switch = attach(skel, &program_name(mode))?;
        let begin = attach(skel, "off_cpu_begin")?;
        let end = attach(skel, "off_cpu_end")?;
        let mut blocked = iterate(&begin)?;
        io::copy(&mut blocked, &mut io::sink()).map_err(Error::Wait)?;
        Ok(Self {
            unended: iterate(&end)?,
            _links: vec![exec, exit, switch, end],
        })
    }

    /// No wait ends any more.
    pub(crate) fn stop(&mut self, skel: &mut RecorderSkel<'_>) {
        if let Some(data) = skel.maps.bss_data.as_deref_mut() {
            data.off_cpu_stopped_ns = monotonic_ns();
        }
        // A program that runs now has not seen it; it is done within microseconds.
        thread::sleep(Duration::from_millis(1));
    }

    /// Send events for some of the tasks that are still blocked. Whether there may be more.
    pub(crate) fn send_unended(&mut self) -> Result<bool> {
        // The program writes a byte for each event that it sends: that is what bounds how many.
        let mut sent = [0; UNENDED];
        Ok(self.unended.read(&mut sent).map_err(Error::Wait)? > 0)
    }
}

fn attach(skel: &RecorderSkel<'_>, name: &str) -> Result<Link> {
    let mut programs = skel.object().progs_mut();
    let program = programs
        .find(|program| program.name() == name)
        .ok_or(Error::NoProgram("waits"))?;
    program.attach().map_err(|error| Error::Attach {
        program: "off_cpu",
        place: name.to_owned(),
        error,
    })
}

fn iterate(link: &Link) -> Result<Iter> {
    Iter::new(link).map_err(|error| Error::Attach {
        program: "off_cpu",
        place: "all tasks".to_owned(),
        error,
    })
}
