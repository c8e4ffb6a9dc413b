//! What `/proc` says of processes that were there before the side-band told of them. Only the helper may read it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Longest text of a process's mappings that is kept, in bytes.
const MAX_MAPS: usize = 4 << 20;

/// The executable mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Maps {
    /// In the order of addresses.
    pub(crate) lines: Vec<MapsLine>,
    /// All of them are there.
    pub(crate) is_whole: bool,
    /// When they were read, or shortly before; monotonic clock.
    pub(crate) read_ns: u64,
}

impl Maps {
    /// About how long they are.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.iter().map(|line| 64 + line.path.len()).sum()
    }
}

use crate::host::{asleep_ns, monotonic_ns};

/// An executable mapping, as a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapsLine {
    /// Addresses.
    pub(crate) addresses: Range<u64>,
    /// Where a file is mapped as it is: the same addresses, but of copied code those in front.
    pub(crate) file_at: Range<u64>,
    /// `PROT_*` bits.
    pub(crate) protection: u32,
    /// File offset of the first address.
    pub(crate) offset: u64,
    /// Device, major and minor number.
    pub(crate) device: (u32, u32),
    /// Inode, 0 for memory without a file.
    pub(crate) inode: u64,
    /// Path or name, empty for memory without one.
    pub(crate) path: Vec<u8>,
}

impl MapsLine {
    /// Take a line apart; `None` for one that is not executable.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        Self::parse_any(line).filter(|line| line.protection & 4 != 0)
    }

    /// Take a line apart, executable or not.
    pub(crate) fn parse_any(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let end = rest
                .iter()
                .position(|&byte| byte == b' ')
                .unwrap_or(rest.len());
            let (field, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            std::str::from_utf8(field).ok()
        };
        let (start, end) = field()?.split_once('-')?;
        let rights = field()?.as_bytes();
        let offset = u64::from_str_radix(field()?, 16).ok()?;
        let (major, minor) = field()?.split_once(':')?;
        let inode = field()?.parse().ok()?;
        let protection = [(0, b'r', 1), (1, b'w', 2), (2, b'x', 4)]
            .iter()
            .filter(|(at, letter, _)| rights.get(*at) == Some(letter))
            .map(|(_, _, bit)| bit)
            .sum();
        let addresses = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        Some(Self {
            file_at: addresses.clone(),
            addresses,
            protection,
            offset,
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode,
            path: rest.trim_ascii_start().to_vec(),
        })
    }
}

/// The executable mappings of a process.
pub(crate) fn maps(pid: u32) -> io::Result<Maps> {
    read_maps(pid, |_, _| {})
}

/// The same; `see` gets each line as it is, with what it says if it is executable.
pub(crate) fn read_maps(
    pid: u32,
    mut see: impl FnMut(&[u8], Option<&MapsLine>),
) -> io::Result<Maps> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    let read_ns = monotonic_ns();
    for line in BufReader::new(File::open(format!("/proc/{pid}/maps"))?).split(b'\n') {
        let line = line?;
        bytes += line.len();
        if bytes > MAX_MAPS {
            return Ok(Maps {
                lines,
                is_whole: false,
                read_ns,
            });
        }
        let executable = MapsLine::parse(&line);
        see(&line, executable.as_ref());
        lines.extend(executable);
    }
    Ok(Maps {
        lines,
        is_whole: true,
        read_ns,
    })
}

/// What `/proc/PID/stat` and its neighbours say of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessFacts {
    /// Parent's process ID.
    pub(crate) parent: u32,
    /// Start, monotonic clock, to a hundredth of a second.
    pub(crate) start_ns: u64,
    /// Name of the main thread.
    pub(crate) comm: Vec<u8>,
    /// Path in the unified cgroup hierarchy, else in the first.
    pub(crate) cgroup: String,
    /// Process ID in its own namespace.
    pub(crate) namespace_pid: u32,
}

impl ProcessFacts {
    /// Read them.
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        let mut facts = Self::parse_stat(&stat).ok_or(io::ErrorKind::InvalidData)?;
        facts.cgroup = cgroup_of(pid).unwrap_or_default();
        let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        let status = Status::parse(&String::from_utf8_lossy(&status));
        facts.namespace_pid = status.map_or(pid, |status| status.namespace_pid);
        Ok(facts)
    }

    /// The name stands in the last pair of brackets and may hold any byte.
    pub(crate) fn parse_stat(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|&byte| byte == b'(')?;
        let close = stat.iter().rposition(|&byte| byte == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(stat.get(close + 1..)?)
            .ok()?
            .split_ascii_whitespace()
            .collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            start_ns: start_ns(fields.get(19)?.parse().ok()?, asleep_ns()),
            comm: stat.get(open + 1..close)?.to_vec(),
            ..Self::default()
        })
    }
}

/// Field 22 of proc(5) by the monotonic clock. It counts the time that the machine slept, too.
fn start_ns(ticks: u64, asleep_ns: u64) -> u64 {
    // USER_HZ is 100 on every architecture of ours. What started before that clock did is not 0: that is "not known".
    ticks
        .saturating_mul(10_000_000)
        .saturating_sub(asleep_ns)
        .max(1)
}

/// The cgroup of a process: its path in the unified hierarchy, else in the first.
pub(crate) fn cgroup_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"));
    text.ok().map(|text| cgroup(&text))
}

fn cgroup(text: &str) -> String {
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let unified = text
        .lines()
        .find(|line| line.starts_with("0::"))
        .and_then(path);
    unified
        .filter(|path| path != "/")
        .or_else(|| text.lines().next().and_then(path))
        .unwrap_or_default()
}

/// What `/proc/PID/status` says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Process ID in its own namespace.
    pub(crate) namespace_pid: u32,
    /// Effective user ID, in the recorder's namespace.
    pub(crate) user: u32,
}

impl Status {
    /// Read it from its text. The name, in which a line end stands as `\n`, cannot forge a line.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::split_ascii_whitespace)
        };
        Some(Self {
            namespace_pid: words("NSpid:")?.last()?.parse().ok()?,
            user: words("Uid:")?.nth(1)?.parse().ok()?,
        })
    }
}

/// The name of a thread.
pub(crate) fn thread_name(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(name.strip_suffix(b"\n").map(<[u8]>::to_vec).unwrap_or(name))
}

/// All processes there are.
pub(crate) fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use blazesym::normalize::{Normalizer, UserMeta};

    use super::*;

    /// Check that an executable line is read, with a path that holds spaces, and a data line is not.
    #[test]
    fn maps_lines() {
        let line =
            b"7f00-8f00 r-xp 00001000 fd:01 1234                   /opt/my app/lib.so (deleted)";
        let expected = MapsLine {
            addresses: 0x7f00..0x8f00,
            file_at: 0x7f00..0x8f00,
            protection: 5,
            offset: 0x1000,
            device: (0xfd, 1),
            inode: 1234,
            path: b"/opt/my app/lib.so (deleted)".to_vec(),
        };
        assert_eq!(MapsLine::parse(line), Some(expected));
        assert_eq!(
            MapsLine::parse(b"7f00-8f00 rw-p 00001000 fd:01 1234 /x"),
            None
        );
        assert_eq!(MapsLine::parse(b""), None);
    }

    /// Check that a process name with brackets and spaces does not shift the fields behind it.
    #[test]
    fn stat_with_hostile_name() {
        let stat = b"42 (a) (b c) S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123 0";
        let facts = ProcessFacts::parse_stat(stat).unwrap();
        assert_eq!(
            (facts.parent, facts.comm.as_slice()),
            (7, b"a) (b c".as_slice())
        );
    }

    /// Check that a start is told by the monotonic clock, and never as "not known".
    #[test]
    fn starts() {
        assert_eq!(start_ns(123, 0), 1_230_000_000);
        assert_eq!(start_ns(123, 1_000_000_000), 230_000_000);
        assert_eq!(start_ns(0, 0), 1);
    }

    /// Check that the innermost process ID and the effective user are taken.
    #[test]
    fn status_lines() {
        let text = "Name:\ta\nUid:\t1000\t0\t1000\t0\nNSpid:\t42\t7\n";
        let status = Status {
            namespace_pid: 7,
            user: 0,
        };
        assert_eq!(Status::parse(text), Some(status));
        assert_eq!(Status::parse("Uid:\t1\n"), None);
    }

    /// Check that the unified hierarchy is preferred unless it says nothing.
    #[test]
    fn cgroup_paths() {
        assert_eq!(cgroup("12:cpu:/a\n0::/b:c\n"), "/b:c");
        assert_eq!(cgroup("12:cpu:/a\n0::/\n"), "/a");
        assert_eq!(cgroup(""), "");
    }

    /// Check that addresses in each mapped file of this process are placed as blazesym normalizes them.
    #[test]
    fn as_blazesym() {
        let pid = std::process::id();
        let lines = maps(pid).unwrap().lines;
        let files: Vec<_> = lines.iter().filter(|line| line.inode != 0).collect();
        let addresses: Vec<u64> = files.iter().map(|line| line.addresses.end - 1).collect();
        let normalizer = Normalizer::builder().enable_build_ids(false).build();
        let output = normalizer.normalize_user_addrs(pid.into(), &addresses);
        let output = output.unwrap();
        assert!(!files.is_empty() && output.outputs.len() == files.len());
        for (line, (offset, meta)) in files.iter().zip(output.outputs) {
            let Some(UserMeta::Elf(elf)) = output.meta.get(meta) else {
                panic!("{line:?} is no ELF file to blazesym");
            };
            let length = line.addresses.end - line.addresses.start;
            assert_eq!(offset, line.offset + length - 1);
            assert_eq!(elf.path.as_os_str().as_encoded_bytes(), line.path);
        }
    }

    /// Check that this process finds its own code.
    #[test]
    fn own_process() {
        let pid = std::process::id();
        let maps = maps(pid).unwrap();
        assert!(maps.is_whole && maps.lines.iter().any(|line| line.inode != 0));
        assert_eq!(ProcessFacts::read(pid).unwrap().namespace_pid, pid);
        assert!(pids().contains(&pid));
    }
}
