//! The command line, and the way from it to [`Options`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use jiff::Timestamp;
use rustix::system::uname;

use crate::error::{Error, Result};
use crate::options::{Options, Target, UserStacks};

/// The kernel's own limit of `cpu-clock`: 10 microseconds.
const MAX_FREQUENCY: u64 = 100_000;

const EXAMPLES: &str = "\
EXAMPLES:
  rawstack-record -d 30s                  the whole machine for 30 seconds
  rawstack-record -o app.rawstack -- ./app --flag
                                          a command and its children
  rawstack-record -p 1234,5678 -F 999     two processes, until Ctrl-C
  rawstack-record -a -- sleep 10          the whole machine while a command runs
Then, anywhere:  rawstack report FILE";

/// Record stack traces raw: no symbols here, names come later and elsewhere.
#[derive(Debug, Parser)]
#[command(name = "rawstack-record", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Record all processes (the default without COMMAND and -p)
    #[arg(short, long, conflicts_with = "pid", help_heading = "Target")]
    all: bool,
    /// Record these processes and the children they make
    #[arg(
        short,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Target"
    )]
    pid: Vec<u32>,
    /// Event to sample: cpu-clock
    #[arg(
        short,
        long,
        value_name = "EVENT",
        default_value = "cpu-clock",
        help_heading = "Event"
    )]
    event: String,
    /// Samples per second of CPU time, on each CPU [default: 199]
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        conflicts_with = "period",
        help_heading = "Event"
    )]
    frequency: Option<u64>,
    /// Nanoseconds of CPU time between two samples
    #[arg(short = 'c', long, value_name = "N", help_heading = "Event")]
    period: Option<u64>,
    /// When to take user stacks [default: deferred where the kernel can]
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Stacks")]
    user_stacks: Option<UserStacksArg>,
    /// Whether to take kernel stacks
    #[arg(
        long,
        value_enum,
        value_name = "ON",
        default_value = "on",
        help_heading = "Stacks"
    )]
    kernel_stacks: Switch,
    /// User frames to keep of one stack at most (up to 1024); deeper ones are
    /// told as truncated, with their real depth
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1024,
        help_heading = "Stacks"
    )]
    max_frames: u32,
    /// Which of the kernel's symbols to put into the archive: those of kernel
    /// frames, or all (half a megabyte)
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "seen",
        help_heading = "Output"
    )]
    kernel_symbols: KernelSymbolsArg,
    /// Stop after this time: 10s, 5m, 500ms
    #[arg(short, long, value_name = "TIME", help_heading = "End")]
    duration: Option<String>,
    /// Archive to write [default: rawstack-HOST-YYYYMMDD-HHMMSS.rawstack]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Overwrite an archive of that name
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Put a label into the archive (repeatable)
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Output")]
    label: Vec<String>,
    /// Say nothing but errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
    /// Say more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    verbose: u8,
    /// Command to run; its end ends the recording. It and its children are
    /// what is recorded, unless -a or -p says otherwise
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UserStacksArg {
    /// On return to user space, page faults allowed (kernel 6.18 and newer)
    Deferred,
    /// At the tick, from what is in memory
    Immediate,
    /// Not at all
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelSymbolsArg {
    Seen,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Args {
    /// Whether only errors are to be said.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether more is to be said.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Check them.
    pub fn into_options(self) -> Result<Options> {
        if self.event != "cpu-clock" {
            let why = format!("event {:?} is not known", self.event);
            return Err(Error::Option {
                option: "--event",
                why,
                cure: "this version samples cpu-clock",
            });
        }
        let (period, frequency) = self.period()?;
        if !(1..=1024).contains(&self.max_frames) {
            let why = format!("{} is out of range", self.max_frames);
            return Err(Error::Option {
                option: "--max-frames",
                why,
                cure: "give 1 to 1024",
            });
        }
        let duration = self.duration.as_deref().map(parse_duration).transpose()?;
        let labels = self
            .label
            .iter()
            .map(|label| parse_label(label))
            .collect::<Result<_>>()?;
        let given = self.given(period, frequency);
        let target = if !self.pid.is_empty() {
            Target::Pids(self.pid)
        } else if self.all || self.command.is_empty() {
            Target::All
        } else {
            Target::Command
        };
        Ok(Options {
            target,
            command: self.command,
            period,
            frequency,
            user_stacks: match self.user_stacks {
                None => UserStacks::Best,
                Some(UserStacksArg::Deferred) => UserStacks::Deferred,
                Some(UserStacksArg::Immediate) => UserStacks::Immediate,
                Some(UserStacksArg::Off) => UserStacks::Off,
            },
            kernel_stacks: self.kernel_stacks == Switch::On,
            all_kernel_symbols: self.kernel_symbols == KernelSymbolsArg::All,
            max_frames: self.max_frames,
            duration,
            output: self.output.unwrap_or_else(default_output),
            force: self.force,
            labels,
            given,
        })
    }

    fn period(&self) -> Result<(u64, u64)> {
        let limit = |option, why: String, cure| Err(Error::Option { option, why, cure });
        match (self.period, self.frequency) {
            (Some(period), _) if period < 1_000_000_000 / MAX_FREQUENCY => limit(
                "--period",
                format!("{period} ns is too short"),
                "give 10000 or more",
            ),
            (Some(period), _) => Ok((period, 0)),
            (None, frequency) => match frequency.unwrap_or(199) {
                0 => limit(
                    "--frequency",
                    "0 Hz gives no samples".to_owned(),
                    "give 1 to 100000",
                ),
                hz if hz > MAX_FREQUENCY => limit(
                    "--frequency",
                    format!("{hz} Hz is too fast"),
                    "give 1 to 100000",
                ),
                hz => Ok((1_000_000_000 / hz, hz)),
            },
        }
    }

    /// The options for the archive. Not the command's words: they may hold secrets.
    fn given(&self, period: u64, frequency: u64) -> Vec<(String, String)> {
        let mut given = vec![
            ("event", self.event.clone()),
            ("frequency", frequency.to_string()),
            ("period", period.to_string()),
            ("max-frames", self.max_frames.to_string()),
            (
                "kernel-stacks",
                format!("{:?}", self.kernel_stacks).to_lowercase(),
            ),
        ];
        if let Some(stacks) = self.user_stacks {
            given.push(("user-stacks", format!("{stacks:?}").to_lowercase()));
        }
        if let Some(duration) = &self.duration {
            given.push(("duration", duration.clone()));
        }
        if !self.pid.is_empty() {
            given.push((
                "pid",
                self.pid
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            ));
        }
        given.push(("target", self.target_name().to_owned()));
        given
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn target_name(&self) -> &'static str {
        match (self.pid.is_empty(), self.all || self.command.is_empty()) {
            (false, _) => "pid",
            (true, true) => "all",
            (true, false) => "command",
        }
    }
}

/// A number with a unit of time.
fn parse_duration(text: &str) -> Result<Duration> {
    let digits = text.len()
        - text
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
            .len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().unwrap_or(f64::NAN) * seconds;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(Error::Option {
            option: "--duration",
            why: format!("{text:?} is no time"),
            cure: "give a number above 0 with ms, s, m, h or d: 10s",
        }),
    }
}

fn parse_label(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Error::Option {
            option: "--label",
            why: format!("{text:?} is no pair"),
            cure: "give KEY=VALUE",
        }),
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
    use super::*;

    fn options(words: &[&str]) -> Result<Options> {
        Args::try_parse_from([&["rawstack-record"], words].concat())
            .unwrap()
            .into_options()
    }

    /// Check that clap accepts the definition itself.
    #[test]
    fn definition() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    /// Check the defaults of the contract: all processes, 199 Hz.
    #[test]
    fn defaults() {
        let options = options(&[]).unwrap();
        assert_eq!(
            (options.target, options.frequency, options.period),
            (Target::All, 199, 5_025_125)
        );
        assert!(options.output.to_string_lossy().starts_with("rawstack-"));
    }

    /// Check that times are read with each unit, and that nonsense names the option and the cure.
    #[test]
    fn durations() {
        assert_eq!(parse_duration("10s").unwrap(), Duration::from_secs(10));
        assert_eq!(parse_duration("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        for bad in ["", "s", "-1s", "0", "1x", "1e400s", "."] {
            assert!(
                parse_duration(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("--duration"),
                "{bad}"
            );
        }
    }

    /// Check that out-of-range values are refused by name.
    #[test]
    fn ranges() {
        for words in [
            ["-F", "0"],
            ["-F", "100001"],
            ["-c", "9999"],
            ["--max-frames", "0"],
            ["--label", "x"],
            ["-e", "x"],
        ] {
            let error = options(&words).unwrap_err().to_string();
            assert!(error.starts_with("failed to read option --"), "{error}");
        }
    }
}
