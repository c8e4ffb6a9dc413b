//! What the kernel names in `/sys/bus/event_source/devices`: PMUs, their events and how terms become bits.

use std::fs;
use std::path::{Path, PathBuf};
use std::result;

use rawstack_bpf::parse_cpu_list;

use super::counter::Kind;
use super::suggest::did_you_mean;
use crate::error::{Error, Result};

/// The PMUs of the host.
#[derive(Clone, Debug)]
pub(crate) struct Pmus {
    root: PathBuf,
}

impl Default for Pmus {
    fn default() -> Self {
        Self::new(Path::new("/sys/bus/event_source/devices"))
    }
}

impl Pmus {
    /// Those below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The type of a PMU.
    pub(crate) fn kind(&self, pmu: &str) -> Option<Kind> {
        let dir = self.root.join(pmu);
        let kind = read(&dir.join("type"))?.parse().ok()?;
        let listed = ["cpus", "cpumask"].map(|name| read(&dir.join(name)));
        let cpus = listed.into_iter().flatten().find(|list| !list.is_empty());
        Some(Kind {
            kind,
            cpus: cpus.and_then(|list| parse_cpu_list(&list)),
        })
    }

    /// `PMU/EVENT/` or `PMU/TERM=VALUE,…/`, or an event's name alone, of whichever PMU has it.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(Kind, [u64; 3])>> {
        if let Some(inner) = name.strip_suffix('/') {
            let (pmu, terms) = inner.split_once('/').unwrap_or((inner, ""));
            return self.parse(name, pmu, terms).map(Some);
        }
        let has_it = |pmu: &String| self.root.join(pmu).join("events").join(name).is_file();
        // A name with a dot in it is a scale or a unit beside an event.
        let is_name = !name.contains(['.', '/']);
        match list(&self.root)
            .into_iter()
            .find(|pmu| is_name && has_it(pmu))
        {
            Some(pmu) => self.parse(name, &pmu, name).map(Some),
            None => Ok(None),
        }
    }

    /// Every event, as `PMU/EVENT/`.
    pub(crate) fn names(&self) -> Vec<String> {
        let events = |pmu: String| {
            let names = list(&self.root.join(&pmu).join("events"));
            names
                .into_iter()
                .filter(|name| !name.contains('.'))
                .map(move |name| format!("{pmu}/{name}/"))
        };
        list(&self.root).into_iter().flat_map(events).collect()
    }

    fn parse(&self, event: &str, pmu: &str, terms: &str) -> Result<(Kind, [u64; 3])> {
        let refuse = |why: String| Error::Event {
            event: event.to_owned(),
            why,
            cure: "see /sys/bus/event_source/devices",
        };
        let known = list(&self.root);
        let kind = self.kind(pmu).ok_or_else(|| {
            let near = did_you_mean(pmu, known.iter().map(String::as_str));
            refuse(format!("there is no PMU {pmu}{near}"))
        })?;
        let dir = self.root.join(pmu);
        let mut config = [0; 3];
        for term in terms.split(',').filter(|term| !term.is_empty()) {
            if let Some(alias) = read(&dir.join("events").join(term)).filter(|_| is_plain(term)) {
                for term in alias.split(',') {
                    apply(&dir, term, &mut config).map_err(&refuse)?;
                }
            } else {
                apply(&dir, term, &mut config).map_err(&refuse)?;
            }
        }
        Ok((kind, config))
    }
}

/// Put one term into the configuration.
fn apply(dir: &Path, term: &str, config: &mut [u64; 3]) -> result::Result<(), String> {
    let (name, value) = term.split_once('=').unwrap_or((term, "1"));
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    let number = number.map_err(|_| format!("{value:?} of term {name} is no number"))?;
    if let Some(place) = ["config", "config1", "config2"]
        .iter()
        .position(|it| *it == name)
    {
        config[place] = number;
        return Ok(());
    }
    let format = read(&dir.join("format").join(name)).filter(|_| is_plain(name));
    let Some(format) = format else {
        let mut known = list(&dir.join("format"));
        known.extend(list(&dir.join("events")));
        let near = did_you_mean(name, known.iter().map(String::as_str));
        return Err(format!(
            "the PMU has neither an event nor a term {name:?}{near}"
        ));
    };
    let rest = scatter(&format, number, config)
        .ok_or_else(|| format!("the format {format:?} of term {name} is not understood"))?;
    if rest != 0 {
        return Err(format!("{value} is too large for term {name} ({format})"));
    }
    Ok(())
}

/// Put the bits of `number` where `format` (`config:0-7,32-35`) says. What found no place is given back.
fn scatter(format: &str, number: u64, config: &mut [u64; 3]) -> Option<u64> {
    let (word, ranges) = format.split_once(':')?;
    let word = ["config", "config1", "config2"]
        .iter()
        .position(|it| *it == word)?;
    let mut rest = number;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last > 63 {
            return None;
        }
        let width = last - first + 1;
        let mask = u64::MAX >> (64 - width);
        config[word] = config[word] & !(mask << first) | (rest & mask) << first;
        rest = rest.checked_shr(width).unwrap_or(0);
    }
    Some(rest)
}

/// A name of one file, no path.
fn is_plain(name: &str) -> bool {
    !name.contains('/') && name != ".." && name != "."
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Names in a folder, sorted.
fn list(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `cpu` PMU with two events.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join("cpu");
        for sub in ["events", "format"] {
            fs::create_dir_all(cpu.join(sub)).unwrap();
        }
        for (file, text) in [
            ("type", "4\n"),
            ("cpus", "0-1\n"),
            ("events/cache-hits", "event=0x3c,umask=0x41,inv\n"),
            ("events/cache-hits.unit", "B\n"),
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/inv", "config:23\n"),
            ("format/ldlat", "config1:0-15\n"),
        ] {
            fs::write(cpu.join(file), text).unwrap();
        }
        dir
    }

    /// Check events by name, terms by value, and both together.
    #[test]
    fn terms() {
        let tree = tree();
        let pmus = Pmus::new(tree.path());
        let config = |name: &str| pmus.find(name).unwrap().unwrap().1;
        let hits = [0x3c | 0x41 << 8 | 1 << 23, 0, 0];
        assert_eq!(config("cpu/cache-hits/"), hits);
        assert_eq!(config("cache-hits"), hits);
        assert_eq!(config("cpu/cache-hits,ldlat=30/"), [hits[0], 30, 0]);
        assert_eq!(config("cpu/event=0xabc/"), [0xbc | 0xa << 32, 0, 0]);
        assert_eq!(config("cpu/config=0x11,config2=7/"), [0x11, 0, 7]);
        let (kind, _) = pmus.find("cpu/inv/").unwrap().unwrap();
        assert_eq!((kind.kind, kind.cpus), (4, Some(vec![0, 1])));
        assert_eq!(pmus.names(), ["cpu/cache-hits/"]);
    }

    /// Check that what is wrong is told with what is near.
    #[test]
    fn mistakes() {
        let tree = tree();
        let pmus = Pmus::new(tree.path());
        assert!(pmus.find("cache-hits.unit").unwrap().is_none());
        for (event, why) in [
            ("cqu/x/", "there is no PMU cqu; did you mean cpu?"),
            ("cpu/umsk=1/", "did you mean umask?"),
            ("cpu/cache-hit/", "did you mean cache-hits"),
            ("cpu/umask=0x1ff/", "too large"),
            ("cpu/umask=x/", "is no number"),
            ("cpu/../type/", "neither"),
        ] {
            let text = pmus.find(event).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
    }
}
