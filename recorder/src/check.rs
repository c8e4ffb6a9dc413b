//! From the command line to [`Options`]: every value checked, every default filled in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rawstack_bpf::{MAX_COPY_BYTES, parse_cpu_list};
use rustix::system::uname;

use crate::args::{Args, CopyWordsArg, KernelSymbolsArg, Switch, UserStacksArg};
use crate::error::{Error, Result};
use crate::event_spec::EventSpec;
use crate::options::{Amount, Growth, Options, Rate, Targets, UserStacks};
use crate::units::{parse_duration, parse_size};

/// The kernel's own limit of `cpu-clock`: 10 microseconds.
const MAX_FREQUENCY: u64 = 100_000;
/// Below this, what the recorder takes in any case leaves next to nothing, in bytes.
const LEAST_MEMORY: u64 = 32 << 20;
/// The commands of all runs are processes from the beginning: once the recording goes on, there is no right to start any.
const MAX_RUNS: u32 = 1000;
/// An archive shorter than this would hold little but its own header and tables, in bytes.
const LEAST_SIZE: u64 = 1 << 20;
/// Bytes of each stack that are copied where none are named: most stacks are smaller.
const DEFAULT_COPY: u64 = 64 << 10;

fn refuse<T>(option: &'static str, why: String, cure: &'static str) -> Result<T> {
    Err(Error::Option { option, why, cure })
}

impl Args {
    /// Check them.
    pub fn into_options(self) -> Result<Options> {
        let rate = self.rate()?;
        if !(1..=1024).contains(&self.max_frames) {
            let why = format!("{} is out of range", self.max_frames);
            return refuse("--max-frames", why, "give 1 to 1024");
        }
        if !(1..=MAX_RUNS).contains(&self.runs) {
            let why = format!("{} is out of range", self.runs);
            return refuse("--runs", why, "give 1 to 1000");
        }
        let labels = self
            .label
            .iter()
            .map(|label| parse_label(label))
            .collect::<Result<_>>()?;
        Ok(Options {
            targets: self.targets()?,
            runs: self.runs,
            work: self.work.map(check_work).transpose()?,
            events: self.events()?,
            rate,
            user_stacks: match self.user_stacks {
                None => UserStacks::Best,
                Some(UserStacksArg::Deferred) => UserStacks::Deferred,
                Some(UserStacksArg::Immediate) => UserStacks::Immediate,
                Some(UserStacksArg::Off) => UserStacks::Off,
            },
            kernel_stacks: self.kernel_stacks == Switch::On,
            all_kernel_symbols: self.kernel_symbols == KernelSymbolsArg::All,
            max_frames: self.max_frames,
            copy_bytes: self.copy_bytes()?,
            copy_addresses_only: self.copy_words == CopyWordsArg::Addresses,
            duration: self
                .duration
                .as_deref()
                .map(|text| time_of("--duration", text))
                .transpose()?,
            growth: self.growth()?,
            max_memory: self.memory()?,
            quiet: self.quiet,
            labels,
            given: self.given(rate),
            output: self.output.unwrap_or_else(default_output),
            force: self.force,
            command: self.command,
        })
    }

    fn targets(&self) -> Result<Targets> {
        let names_tasks = !self.pid.is_empty() || !self.tid.is_empty();
        let cpus = self.cpu.as_deref().map(|text| {
            parse_cpu_list(text).map_or_else(
                || {
                    refuse(
                        "--cpu",
                        format!("{text:?} is no list of CPUs"),
                        "give numbers and ranges: 0-3,8",
                    )
                },
                Ok,
            )
        });
        Ok(Targets {
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            command: !(self.command.is_empty()
                || self.all
                || names_tasks
                || !self.cgroup.is_empty()),
            cgroups: self.cgroup.clone(),
            cpus: cpus.transpose()?,
        })
    }

    fn events(&self) -> Result<Vec<EventSpec>> {
        let mut events: Vec<EventSpec> = Vec::new();
        for text in &self.event {
            let event = EventSpec::parse(text)?;
            if events.contains(&event) {
                return refuse(
                    "--event",
                    format!("{text} is given twice"),
                    "give each event once",
                );
            }
            events.push(event);
        }
        Ok(events)
    }

    fn rate(&self) -> Result<Rate> {
        match (self.period, self.frequency) {
            (Some(0), _) => refuse(
                "--period",
                "0 gives no samples".to_owned(),
                "give 1 or more",
            ),
            (Some(period), _) => Ok(Rate::Period(period)),
            (None, Some(0)) => refuse(
                "--frequency",
                "0 Hz gives no samples".to_owned(),
                "give 1 to 100000",
            ),
            (None, Some(hz)) if hz > MAX_FREQUENCY => refuse(
                "--frequency",
                format!("{hz} Hz is too fast"),
                "give 1 to 100000",
            ),
            (None, hz) => Ok(Rate::Frequency(hz.unwrap_or(199))),
        }
    }

    fn growth(&self) -> Result<Growth> {
        if self.output.as_deref() == Some(Path::new("-")) {
            let several = [
                ("--rotate", &self.rotate),
                ("--flight-recorder", &self.flight_recorder),
            ];
            if let Some((option, _)) = several.into_iter().find(|(_, text)| text.is_some()) {
                let why = "standard output takes one archive".to_owned();
                return refuse(option, why, "name a file with -o");
            }
        }
        if let Some(text) = &self.max_size {
            return Ok(Growth::MaxSize(size_of("--max-size", text)?));
        }
        if let Some(text) = &self.rotate {
            if self.keep == Some(0) {
                return refuse(
                    "--keep",
                    "0 archives keep nothing".to_owned(),
                    "give 1 or more",
                );
            }
            let each = amount_of("--rotate", text)?;
            return Ok(Growth::Rotate {
                each,
                keep: self.keep,
            });
        }
        let Some(text) = &self.flight_recorder else {
            return Ok(Growth::Unlimited);
        };
        Ok(Growth::FlightRecorder(amount_of(
            "--flight-recorder",
            text,
        )?))
    }

    /// Bytes of each stack to copy, whole pages; 0 for none.
    fn copy_bytes(&self) -> Result<u32> {
        let text = self.unwind.as_str();
        let size = match text.split_once(':') {
            None if text == "fp" => return Ok(0),
            None if text == "stack-copy" => Some(DEFAULT_COPY),
            Some(("stack-copy", size)) => parse_size(size),
            _ => {
                let why = format!("{text:?} is not known");
                return refuse("--unwind", why, "give fp, stack-copy or stack-copy:32K");
            }
        };
        if self.user_stacks == Some(UserStacksArg::Off) {
            let why = "stacks that are not taken cannot be copied".to_owned();
            return refuse("--unwind", why, "leave out --user-stacks off");
        }
        let pages = size.and_then(|size| u32::try_from(size).ok()?.checked_next_multiple_of(4096));
        match pages.filter(|&bytes| bytes <= MAX_COPY_BYTES) {
            Some(bytes) => Ok(bytes),
            None => {
                let why = format!("{text:?} names no size of a copy");
                refuse("--unwind", why, "give 1K to 512K: stack-copy:64K")
            }
        }
    }

    fn memory(&self) -> Result<u64> {
        let text = &self.max_memory;
        match parse_size(text) {
            Some(bytes) if bytes >= LEAST_MEMORY => Ok(bytes),
            Some(_) => refuse(
                "--max-memory",
                format!("{text} is too little"),
                "give 32M or more",
            ),
            None => refuse(
                "--max-memory",
                format!("{text:?} is no size"),
                "give a number with K, M or G: 64M",
            ),
        }
    }

    /// The options for the archive. Not the command's words: they may hold secrets.
    fn given(&self, rate: Rate) -> Vec<(String, String)> {
        let list = |numbers: &[u32]| {
            numbers
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let lower = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let (frequency, period) = match rate {
            Rate::Frequency(hz) => (Some(hz.to_string()), None),
            Rate::Period(period) => (None, Some(period.to_string())),
        };
        let mut given: Vec<(&str, Option<String>)> = self
            .event
            .iter()
            .map(|event| ("event", Some(event.clone())))
            .collect();
        given.extend([
            ("frequency", frequency),
            ("period", period),
            ("max-frames", Some(self.max_frames.to_string())),
            ("kernel-stacks", Some(lower(&self.kernel_stacks))),
            ("unwind", (self.unwind != "fp").then(|| self.unwind.clone())),
            (
                "copy-words",
                (self.unwind != "fp").then(|| lower(&self.copy_words)),
            ),
            (
                "user-stacks",
                self.user_stacks.as_ref().map(|stacks| lower(stacks)),
            ),
            ("duration", self.duration.clone()),
            ("pid", (!self.pid.is_empty()).then(|| list(&self.pid))),
            ("tid", (!self.tid.is_empty()).then(|| list(&self.tid))),
            ("cpu", self.cpu.clone()),
            ("max-size", self.max_size.clone()),
            ("rotate", self.rotate.clone()),
            ("keep", self.keep.map(|keep| keep.to_string())),
            ("flight-recorder", self.flight_recorder.clone()),
            ("max-memory", Some(self.max_memory.clone())),
            ("runs", (self.runs > 1).then(|| self.runs.to_string())),
            ("work", self.work.map(|work| work.to_string())),
            ("target", Some(self.target_name().to_owned())),
        ]);
        let cgroups = self
            .cgroup
            .iter()
            .map(|path| ("cgroup", Some(path.display().to_string())));
        given.extend(cgroups);
        given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    fn target_name(&self) -> &'static str {
        if !self.pid.is_empty() {
            "pid"
        } else if !self.tid.is_empty() {
            "tid"
        } else if !self.cgroup.is_empty() {
            "cgroup"
        } else if self.all || self.command.is_empty() {
            "all"
        } else {
            "command"
        }
    }
}

fn time_of(option: &'static str, text: &str) -> Result<Duration> {
    parse_duration(text).map_or_else(
        || {
            refuse(
                option,
                format!("{text:?} is no time"),
                "give a number above 0 with ms, s, m, h or d: 10s",
            )
        },
        Ok,
    )
}

fn size_of(option: &'static str, text: &str) -> Result<u64> {
    match parse_size(text) {
        Some(bytes) if bytes >= LEAST_SIZE => Ok(bytes),
        Some(_) => refuse(option, format!("{text} is too little"), "give 1M or more"),
        None => refuse(
            option,
            format!("{text:?} is no size"),
            "give a number with K, M or G: 100M",
        ),
    }
}

fn amount_of(option: &'static str, text: &str) -> Result<Amount> {
    match (parse_duration(text), parse_size(text)) {
        (Some(time), _) if time < Duration::from_secs(1) => {
            refuse(option, format!("{text} is too short"), "give 1s or more")
        }
        (Some(time), _) => Ok(Amount::Time(time)),
        (None, Some(_)) => Ok(Amount::Size(size_of(option, text)?)),
        (None, None) => refuse(
            option,
            format!("{text:?} is neither size nor time"),
            "give a size with K, M or G (100M), or a time with s, m, h or d (10m)",
        ),
    }
}

fn check_work(work: f64) -> Result<f64> {
    if work.is_finite() && work > 0.0 {
        return Ok(work);
    }
    refuse(
        "--work",
        format!("{work} is no amount of work"),
        "give a number above 0",
    )
}

fn parse_label(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => refuse("--label", format!("{text:?} is no pair"), "give KEY=VALUE"),
    }
}

fn default_output() -> PathBuf {
    let host = uname()
        .nodename()
        .to_string_lossy()
        .replace(|c: char| !(c.is_ascii_alphanumeric() || c == '.'), "-");
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    PathBuf::from(format!("rawstack-{host}-{time}.rawstack"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    fn options(words: &[&str]) -> Result<Options> {
        Args::try_parse_from([&["rawstack-record"], words].concat())
            .unwrap()
            .into_options()
    }

    /// Check that clap accepts the definition itself.
    #[test]
    fn definition() {
        Args::command().debug_assert();
    }

    /// Check the defaults of the contract: all processes, cpu-clock at 199 Hz, one run, one archive.
    #[test]
    fn defaults() {
        let options = options(&[]).unwrap();
        assert!(options.targets.is_all());
        assert_eq!((options.rate, options.runs), (Rate::Frequency(199), 1));
        assert_eq!(options.events, [EventSpec::parse("cpu-clock").unwrap()]);
        assert_eq!(options.growth, Growth::Unlimited);
        assert!(options.output.to_string_lossy().starts_with("rawstack-"));
    }

    /// Check that the command is the target only where nothing else is named.
    #[test]
    fn command_as_target() {
        assert!(options(&["--", "x"]).unwrap().targets.command);
        for words in [["-p", "1"], ["-t", "1"], ["--cgroup", "x"]] {
            assert!(
                !options(&[&words[..], &["--", "x"]].concat())
                    .unwrap()
                    .targets
                    .command
            );
        }
        assert!(options(&["-a", "--", "x"]).unwrap().targets.is_all());
    }

    /// Check that sizes and times of growth are told apart.
    #[test]
    fn growth() {
        let rotate = |text| options(&["--rotate", text, "--keep", "3"]).unwrap().growth;
        let keep = Some(3);
        let (size, time) = (
            Amount::Size(10 << 20),
            Amount::Time(Duration::from_secs(600)),
        );
        assert_eq!(rotate("10M"), Growth::Rotate { each: size, keep });
        assert_eq!(rotate("10m"), Growth::Rotate { each: time, keep });
        assert_eq!(
            options(&["--flight-recorder", "10m"]).unwrap().growth,
            Growth::FlightRecorder(time)
        );
    }

    /// Check that values out of range, and nonsense, are refused by name with a cure.
    #[test]
    fn refusals() {
        for words in [
            ["-F", "0"],
            ["-F", "100001"],
            ["-c", "0"],
            ["-d", "0"],
            ["-d", "x"],
            ["-C", "x"],
            ["--max-frames", "0"],
            ["--label", "x"],
            ["-e", "off-cpu:x"],
            ["--max-size", "10"],
            ["--max-size", "10K"],
            ["--rotate", "x"],
            ["--rotate", "10ms"],
            ["--flight-recorder", "1K"],
            ["--max-memory", "1M"],
        ] {
            let error = options(&words).unwrap_err().to_string();
            assert!(error.starts_with("failed to read option --"), "{error}");
            assert!(error.contains("; give "), "{error}");
        }
        for words in [
            &["-e", "cycles", "-e", "cycles"][..],
            &["--work", "0", "--", "x"],
            &["-r", "0", "--", "x"],
        ] {
            assert!(options(words).is_err());
        }
    }
}
