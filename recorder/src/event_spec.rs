//! Events as they are named on the command line. Knows not what the host has of them.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::units::parse_duration;

/// An event as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The text as given: the event's name in the archive.
    pub name: String,
    /// What it says.
    pub kind: EventKind,
}

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A perf event by name: `cpu-clock`, `cycles:u`, `page-faults`, `r1a8`, `cpu/event=0x3c/`.
    Counter(String),
    /// Time blocked, of waits that took this long or longer.
    OffCpu {
        /// Shortest wait that counts.
        min: Duration,
    },
    /// A tracepoint of the kernel.
    Tracepoint {
        /// Its subsystem: `sched`.
        system: String,
        /// Its name: `sched_switch`.
        name: String,
    },
    /// A place in the kernel's code.
    Kprobe(Place),
    /// A place in a program or library.
    Uprobe {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// The return of the function there, not its start.
        on_return: bool,
    },
    /// A marker that a program's author put into it (`<sys/sdt.h>`).
    Usdt {
        /// The file.
        path: PathBuf,
        /// Provider.
        provider: String,
        /// Name.
        name: String,
    },
}

/// Where a probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A symbol, and bytes behind its start.
    Symbol(String, u64),
    /// A file offset, in bytes.
    Offset(u64),
}

impl Display for EventSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl EventSpec {
    /// Read what was given.
    pub fn parse(text: &str) -> Result<Self> {
        let kind = EventKind::parse(text).ok_or_else(|| Error::Option {
            option: "--event",
            why: format!("{text:?} is no event"),
            cure: "give cpu-clock, cycles, page-faults, off-cpu:1ms, SYS:NAME, uprobe:PATH:SYMBOL or another form of \
                   --help",
        })?;
        Ok(Self {
            name: text.to_owned(),
            kind,
        })
    }
}

impl EventKind {
    fn parse(text: &str) -> Option<Self> {
        let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_whitespace);
        // The last colon parts: a path may have some, a symbol has none.
        let in_file = |rest: &str| {
            let (path, name) = rest.rsplit_once(':')?;
            (!path.is_empty() && is_name(name)).then(|| (PathBuf::from(path), name.to_owned()))
        };
        Some(match text.split_once(':') {
            None if text == "off-cpu" => Self::OffCpu {
                min: Duration::ZERO,
            },
            Some(("off-cpu", min)) => Self::OffCpu {
                min: parse_duration(min)?,
            },
            Some(("kprobe", place)) => Self::Kprobe(Place::parse(place)?),
            Some((kind @ ("uprobe" | "uretprobe"), rest)) => {
                let (path, place) = in_file(rest)?;
                Self::Uprobe {
                    path,
                    place: Place::parse(&place)?,
                    on_return: kind == "uretprobe",
                }
            }
            Some(("usdt", rest)) => {
                let (rest, name) = rest.rsplit_once(':').filter(|(_, name)| is_name(name))?;
                let (path, provider) = in_file(rest)?;
                Self::Usdt {
                    path,
                    provider,
                    name: name.to_owned(),
                }
            }
            // perf's modifiers: `cycles:u`. A PMU's own terms may hold colons, too.
            Some((name, modifiers)) if !is_modifiers(modifiers) && !name.contains('/') => {
                (is_name(name) && is_name(modifiers)).then_some(())?;
                Self::Tracepoint {
                    system: name.to_owned(),
                    name: modifiers.to_owned(),
                }
            }
            _ => Self::Counter(Some(text).filter(|name| is_name(name))?.to_owned()),
        })
    }
}

fn is_modifiers(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| "ukhpGHPISDe".contains(c))
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        if let Some(offset) = parse_number(text) {
            return Some(Self::Offset(offset));
        }
        let (symbol, offset) = match text.rsplit_once('+') {
            Some((symbol, offset)) => (symbol, parse_number(offset)?),
            None => (text, 0),
        };
        (!symbol.is_empty()).then(|| Self::Symbol(symbol.to_owned(), offset))
    }
}

/// A number, decimal or with `0x`.
fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<EventKind> {
        EventKind::parse(text)
    }

    /// Check that each form of the contract is read as what it is.
    #[test]
    fn forms() {
        let counter = |name: &str| Some(EventKind::Counter(name.to_owned()));
        for name in [
            "cpu-clock",
            "cycles:u",
            "r1a8",
            "cpu/event=0x3c,umask=0x1/u",
        ] {
            assert_eq!(kind(name), counter(name));
        }
        let min = Duration::from_millis(1);
        assert_eq!(kind("off-cpu:1ms"), Some(EventKind::OffCpu { min }));
        let (system, name) = ("sched".to_owned(), "sched_switch".to_owned());
        assert_eq!(
            kind("sched:sched_switch"),
            Some(EventKind::Tracepoint { system, name })
        );
        assert_eq!(
            kind("uretprobe:/lib/a:b.so:malloc@GLIBC_2.2.5"),
            Some(EventKind::Uprobe {
                path: "/lib/a:b.so".into(),
                place: Place::Symbol("malloc@GLIBC_2.2.5".to_owned(), 0),
                on_return: true
            })
        );
        assert_eq!(
            kind("uprobe:./a:0x1130"),
            Some(EventKind::Uprobe {
                path: "./a".into(),
                place: Place::Offset(0x1130),
                on_return: false
            })
        );
        assert_eq!(
            kind("usdt:/a:p:n"),
            Some(EventKind::Usdt {
                path: "/a".into(),
                provider: "p".into(),
                name: "n".into()
            })
        );
        let place = Place::Symbol("do_nanosleep".to_owned(), 8);
        assert_eq!(
            kind("kprobe:do_nanosleep+8"),
            Some(EventKind::Kprobe(place))
        );
    }

    /// Check that what is none is refused.
    #[test]
    fn nonsense() {
        for text in [
            "",
            "off-cpu:",
            "off-cpu:x",
            "uprobe:",
            "uprobe:f",
            "usdt:/a:n",
            "a b",
            ":x",
            "kprobe:",
            "x:",
        ] {
            assert_eq!(kind(text), None, "{text}");
        }
    }
}
