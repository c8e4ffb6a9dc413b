//! CPUs that come and go while the recording runs: those that come are recorded from then on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rawstack_bpf::{PerfEvent, Programs, SideBand, parse_cpu_list};

use crate::error::{Error, Result};
use crate::helper::{CpuDoor, Helper};

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// How often it is looked: a new CPU is recorded within a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// Watches which CPUs there are.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    /// Opened while that was allowed; each read says what is so now.
    online: File,
    door: CpuDoor,
    known: Vec<u32>,
    /// Those on which samples are taken; `None`: any.
    wanted: Option<Vec<u32>>,
    /// What counts on CPUs that came later.
    events: Vec<PerfEvent>,
    looked: Instant,
}

impl CpuWatch {
    /// Watch, with `known` CPUs being recorded already. Samples are `wanted` of some CPUs, or of any.
    pub(crate) fn new(
        helper: &Helper,
        programs: &Programs<'_>,
        side_band: &SideBand,
        known: Vec<u32>,
        wanted: Option<Vec<u32>>,
    ) -> Result<Self> {
        let online = File::open(ONLINE).map_err(|error| Error::System {
            action: "watch for CPUs",
            error,
        })?;
        let door = helper.watch_cpus(programs, side_band.has_build_ids())?;
        Ok(Self {
            online,
            door,
            known,
            wanted,
            events: Vec::new(),
            looked: Instant::now(),
        })
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self) -> bool {
        self.looked.elapsed() >= INTERVAL
    }

    /// Look. Whether any has come, and what is to be said of those that cannot be recorded.
    pub(crate) fn turn(&mut self, side_band: &mut SideBand) -> (bool, Vec<String>) {
        self.looked = Instant::now();
        let Some(now) = self.read() else {
            return (false, Vec::new());
        };
        let gone: Vec<u32> = self
            .known
            .iter()
            .copied()
            .filter(|cpu| !now.contains(cpu))
            .collect();
        for cpu in gone {
            // Its events have ended with it and stay so when it comes back.
            self.known.retain(|&known| known != cpu);
            self.events.retain(|event| event.cpu() != cpu);
            side_band.remove(cpu);
        }
        let (mut has_come, mut news) = (false, Vec::new());
        for cpu in now {
            if !self.known.contains(&cpu) {
                has_come = true;
                self.known.push(cpu);
                if let Err(reason) = self.add(cpu, side_band) {
                    news.push(format!("CPU {cpu} has come and is not recorded: {reason}"));
                }
            }
        }
        (has_come, news)
    }

    fn add(&mut self, cpu: u32, side_band: &mut SideBand) -> std::result::Result<(), String> {
        let counts = self.wanted.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        let opened = self
            .door
            .open(cpu, counts)
            .map_err(|error| error.to_string())?;
        side_band
            .add(cpu, opened.side_band)
            .map_err(|error| error.to_string())?;
        self.events.extend(opened.events);
        Ok(())
    }

    fn read(&self) -> Option<Vec<u32>> {
        let mut bytes = [0; 4096];
        let length = self.online.read_at(&mut bytes, 0).ok()?;
        parse_cpu_list(std::str::from_utf8(bytes.get(..length)?).ok()?.trim())
    }

    /// Stop what was started here.
    pub(crate) fn stop(&self) {
        for event in &self.events {
            // One whose CPU has just gone is stopped already.
            _ = event.disable();
        }
    }
}
