//! Cgroups by path: which hierarchy, how deep, which ID. Reads the mounts, writes nothing, knows no processes.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rawstack_bpf::Cgroup;

use crate::error::{Error, Result};

/// Inode of `/proc/self/ns/cgroup` in the namespace that the machine starts in (`PROC_CGROUP_INIT_INO`).
const INITIAL_NAMESPACE: u64 = 0xefff_fffb;
/// Names that a message offers in place of one that is not there.
const OFFERED: usize = 3;

/// A mounted hierarchy, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Where.
    point: PathBuf,
    /// Number of the hierarchy; 0: the unified one.
    hierarchy: u32,
    /// How deep in the hierarchy its root lies; `None`: not known.
    level: Option<u32>,
}

/// The hierarchies as this process sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchies(Vec<Mount>);

impl Hierarchies {
    /// Read what is mounted.
    pub(crate) fn read() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let numbers = fs::read_to_string("/proc/self/cgroup")?;
        // In a namespace of its own a process sees its own cgroup as the root, however deep that lies.
        let is_initial =
            fs::metadata("/proc/self/ns/cgroup").is_ok_and(|meta| meta.ino() == INITIAL_NAMESPACE);
        Ok(Self::parse(&mounts, &numbers, is_initial))
    }

    fn parse(mounts: &str, numbers: &str, is_initial: bool) -> Self {
        let mount = |line| Mount::parse(line, numbers, is_initial);
        let mut mounts: Vec<_> = mounts.lines().filter_map(mount).collect();
        // A path below a mount belongs to the innermost one; the unified hierarchy comes first among equals.
        mounts.sort_by_key(|mount| mount.hierarchy);
        Self(mounts)
    }

    /// The cgroup at `path`: in the file system, or, where that is none, in the first hierarchy that has it.
    pub(crate) fn find(&self, path: &Path) -> Result<Cgroup> {
        let found = path
            .canonicalize()
            .ok()
            .and_then(|path| self.at(&path))
            .or_else(|| self.within().find_map(|mount| self.at(&below(mount, path))));
        found.ok_or_else(|| Error::Option {
            option: "--cgroup",
            why: self.why_none(path),
            cure: "give a folder of a cgroup file system, or a path in a hierarchy as in /proc/PID/cgroup",
        })
    }

    fn within(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|mount| mount.point.as_path())
    }

    /// The cgroup whose folder this is.
    fn at(&self, folder: &Path) -> Option<Cgroup> {
        let meta = fs::metadata(folder).ok().filter(fs::Metadata::is_dir)?;
        let holds = |mount: &&Mount| folder.starts_with(&mount.point);
        let mount = self
            .0
            .iter()
            .filter(holds)
            .max_by_key(|mount| mount.point.components().count())?;
        let depth = depth(folder.strip_prefix(&mount.point).ok()?)?;
        Some(Cgroup {
            hierarchy: mount.hierarchy,
            level: mount.level.and_then(|level| level.checked_add(depth)),
            id: meta.ino(),
        })
    }

    /// What of `path` is there, and what there is beside it.
    fn why_none(&self, path: &Path) -> String {
        let shown = path.display();
        if self.0.is_empty() {
            return format!("{shown} is no cgroup: no hierarchy is mounted");
        }
        if path.exists() {
            return format!("{shown} is no folder of a cgroup file system");
        }
        let nearest = |path: &Path| {
            let there = path.ancestors().skip(1).find(|path| path.is_dir())?;
            let missing = path.strip_prefix(there).ok()?.components().next()?;
            self.at(there)?;
            Some((there.to_owned(), missing.as_os_str().to_owned()))
        };
        let candidates = [path.to_owned()]
            .into_iter()
            .chain(self.within().map(|mount| below(mount, path)));
        let nearest = candidates
            .filter_map(|path| nearest(&path))
            .max_by_key(|(there, _)| there.components().count());
        let Some((there, missing)) = nearest else {
            return format!("there is no cgroup {shown}");
        };
        let names = similar(&there, &missing.to_string_lossy());
        if names.is_empty() {
            return format!("there is no cgroup {shown}: {} has none", there.display());
        }
        format!(
            "there is no cgroup {shown}: {} has {}",
            there.display(),
            names.join(", ")
        )
    }
}

impl Mount {
    /// Take a line of mountinfo apart; `None` for one of another file system.
    fn parse(line: &str, numbers: &str, is_initial: bool) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut fields = system.split(' ');
        let kind = fields.next()?;
        let options = fields.nth(1)?;
        let hierarchy = match kind {
            "cgroup2" => 0,
            "cgroup" => number(options, numbers)?,
            _ => return None,
        };
        let level = is_initial
            .then(|| depth(Path::new(root.strip_prefix('/')?)))
            .flatten();
        Some(Self {
            point: point.into(),
            hierarchy,
            level,
        })
    }
}

/// The number of the hierarchy that is mounted with these options: `/proc/PID/cgroup` names it by its controllers.
fn number(options: &str, numbers: &str) -> Option<u32> {
    let options: Vec<_> = options.split(',').collect();
    numbers.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let number = fields.next()?.parse().ok()?;
        let controllers = fields.next().filter(|names| !names.is_empty())?;
        let all = controllers.split(',').all(|name| options.contains(&name));
        all.then_some(number)
    })
}

/// `\040` and its like, as mountinfo writes spaces.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = || {
            let digits = std::str::from_utf8(tail.get(..3)?).ok()?;
            u8::from_str_radix(digits, 8).ok()
        };
        match octal().filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `path`, absolute or not, within a mount.
fn below(mount: &Path, path: &Path) -> PathBuf {
    mount.join(path.strip_prefix("/").unwrap_or(path))
}

/// Names in a relative path; `None` where it does not only go down.
fn depth(path: &Path) -> Option<u32> {
    let mut depth = 0;
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(depth)
}

/// Folders in `folder` whose names are most like `name`.
fn similar(folder: &Path, name: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let in_common = |other: &str| {
        let pairs = other.bytes().zip(name.bytes());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            entry.file_type().ok().filter(fs::FileType::is_dir)?;
            let name = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
            Some((std::cmp::Reverse(in_common(&name)), name))
        })
        .collect();
    names.sort();
    names
        .into_iter()
        .take(OFFERED)
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "9:name=systemd:/\n4:cpu,cpuacct:/a\n3:memory:/\n0::/\n";

    fn mounts(is_initial: bool) -> Vec<Mount> {
        let lines = "22 27 0:21 / /proc rw - proc proc rw\n\
             32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd\n\
             41 31 0:38 /a/b /mnt/of\\040mine rw,relatime - cgroup2 cgroup2 rw\n";
        Hierarchies::parse(lines, NUMBERS, is_initial).0
    }

    /// Check that hierarchies are found by their controllers or name, the unified one first.
    #[test]
    fn hierarchies() {
        let mount = |point: &str, hierarchy, level| Mount {
            point: point.into(),
            hierarchy,
            level: Some(level),
        };
        let expected = [
            mount("/mnt/of mine", 0, 2),
            mount("/sys/fs/cgroup/cpu,cpuacct", 4, 0),
            mount("/sys/fs/cgroup/systemd", 9, 0),
        ];
        assert_eq!(mounts(true), expected);
    }

    /// Check that nothing is said of a level in a namespace that hides where its root lies.
    #[test]
    fn other_namespace() {
        assert!(mounts(false).iter().all(|mount| mount.level.is_none()));
    }

    /// Check that a path that is no cgroup is refused in one line, with what there is.
    #[test]
    fn no_such_cgroup() {
        let hierarchies = Hierarchies::read().unwrap();
        let say = |path: &str| hierarchies.find(Path::new(path)).unwrap_err().to_string();
        assert!(
            say("/etc").contains("/etc is no folder of a cgroup file system"),
            "{}",
            say("/etc")
        );
        assert!(say("no-such-cgroup/x").contains("there is no cgroup no-such-cgroup/x"));
    }
}
