//! What the kernel tells of processes beside the samples: mappings, names, forks, exits, kernel symbols.
//!
//! Layout of the records: `enum perf_event_type` in `include/uapi/linux/perf_event.h`.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::clock::monotonic_ns;
use crate::error::{Error, Result};
use crate::perf_event::{SAMPLE_ID_LEN, SideBandRing};

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideBandEvent {
    /// Monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// What.
    pub change: Change,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Executable memory was mapped.
    Mapped(NewMapping),
    /// A thread got a name, by itself or by executing a program.
    Named {
        /// Process ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
        /// By executing a program: all mappings before are gone.
        exec: bool,
        /// Name.
        name: Vec<u8>,
    },
    /// A thread began.
    Forked {
        /// Process ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
        /// Its parent's process ID: the same for a thread of a process.
        parent: u32,
        /// Thread ID of the one that made it.
        parent_tid: u32,
    },
    /// A thread ended.
    Exited {
        /// Process ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
    },
    /// Kernel code was made (a BPF program, for one) or freed.
    KernelSymbol {
        /// Address.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Freed.
        removed: bool,
        /// Name.
        name: Vec<u8>,
    },
    /// Records were lost here.
    Lost(u64),
}

/// A mapping just made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMapping {
    /// Process ID.
    pub pid: u32,
    /// Addresses.
    pub addresses: Range<u64>,
    /// File offset of the first address, in bytes.
    pub offset: u64,
    /// `PROT_*` bits.
    pub protection: u32,
    /// Build ID, where the kernel could read it.
    pub build_id: Option<Vec<u8>>,
    /// Major and minor device number, inode: what a record without build ID has.
    pub file: Option<(u32, u32, u64)>,
    /// Path as the kernel gives it, or a name in brackets or behind `//`.
    pub path: Vec<u8>,
}

/// The side-band of all CPUs.
#[derive(Debug)]
pub struct SideBand {
    rings: Vec<SideBandRing>,
    build_ids: bool,
    bytes: Vec<u8>,
    events: Vec<SideBandEvent>,
}

impl SideBand {
    /// Listen on these CPUs from now on, but for those that have gone offline meanwhile.
    pub fn open(cpus: &[u32]) -> Result<Self> {
        // Kernels before 5.12 refuse the flag for build IDs with EINVAL: there the caller reads them itself.
        let open_all = |build_ids| {
            let mut rings = Vec::new();
            for &cpu in cpus {
                match Self::open_on(cpu, build_ids) {
                    Ok(event) => rings.push(SideBandRing::new(event, cpu)?),
                    Err(error) if error.is_gone_cpu() => {}
                    Err(error) => return Err(error),
                }
            }
            Ok((rings, build_ids))
        };
        let (rings, build_ids) = match open_all(true) {
            Err(Error::Perf { error, .. }) if error.raw_os_error() == Some(libc::EINVAL) => {
                open_all(false)?
            }
            other => other?,
        };
        Ok(Self {
            rings,
            build_ids,
            bytes: Vec::new(),
            events: Vec::new(),
        })
    }

    /// The CPUs on which it listens.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().map(SideBandRing::cpu)
    }

    /// Each becomes readable when a quarter of its CPU's room is used. For edge-triggered `epoll`.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(SideBandRing::fd)
    }

    /// Open the event of one CPU, for [`add`](Self::add) in another process.
    pub fn open_on(cpu: u32, build_ids: bool) -> Result<OwnedFd> {
        SideBandRing::open_event(cpu, build_ids)
    }

    /// Whether the kernel reads the build IDs of what it tells of.
    pub fn has_build_ids(&self) -> bool {
        self.build_ids
    }

    /// Listen on one more CPU, by the event that was opened on it.
    pub fn add(&mut self, cpu: u32, event: OwnedFd) -> Result<()> {
        self.rings.push(SideBandRing::new(event, cpu)?);
        Ok(())
    }

    /// Listen no more on a CPU that is gone. What it told until then is not lost.
    pub fn remove(&mut self, cpu: u32) {
        self.read();
        self.rings.retain(|ring| ring.cpu() != cpu);
    }

    fn read(&mut self) {
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.read(&mut self.bytes);
            parse(&self.bytes, &mut self.events);
        }
    }

    /// Hand out, in the order of time, what has been told since the last call: all that happened before this one.
    ///
    /// The rings are read one after another. What comes meanwhile may have come of something that a ring told after it
    /// was read, a thread's name of the thread's beginning: it waits for the next call.
    pub fn drain(&mut self, mut handle: impl FnMut(SideBandEvent)) {
        let until_ns = monotonic_ns();
        self.read();
        // Stable: records of one CPU with the same time stay in their order.
        self.events.sort_by_key(|event| event.time_ns);
        let due = self
            .events
            .partition_point(|event| event.time_ns <= until_ns);
        self.events.drain(..due).for_each(&mut handle);
    }
}

/// Take records apart that lie behind each other.
fn parse(mut bytes: &[u8], events: &mut Vec<SideBandEvent>) {
    while let Some(&[t0, t1, t2, t3, m0, m1, s0, s1]) = bytes.first_chunk() {
        let kind = u32::from_ne_bytes([t0, t1, t2, t3]);
        let misc = u16::from_ne_bytes([m0, m1]);
        let size = usize::from(u16::from_ne_bytes([s0, s1]));
        let Some((record, rest)) = bytes.split_at_checked(size.max(8)) else {
            break;
        };
        bytes = rest;
        let Some((body, id)) = record.split_at_checked(record.len().saturating_sub(SAMPLE_ID_LEN))
        else {
            continue;
        };
        let time_ns = Fields(id).u64_at(8);
        if let (Some(change), Some(time_ns)) = (
            body.get(8..).and_then(|body| change(kind, misc, body)),
            time_ns,
        ) {
            events.push(SideBandEvent { time_ns, change });
        }
    }
}

/// Words at positions of a record's body.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64_at(self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32_at(self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u16_at(self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    /// The string from `at` up to its NUL.
    fn name_at(self, at: usize) -> Option<Vec<u8>> {
        self.0
            .get(at..)?
            .split(|&byte| byte == 0)
            .next()
            .map(<[u8]>::to_vec)
    }
}

fn change(kind: u32, misc: u16, body: &[u8]) -> Option<Change> {
    let fields = Fields(body);
    Some(match kind {
        2 => Change::Lost(fields.u64_at(8)?),
        3 => Change::Named {
            pid: fields.u32_at(0)?,
            tid: fields.u32_at(4)?,
            exec: misc & 1 << 13 != 0, // PERF_RECORD_MISC_COMM_EXEC
            name: fields.name_at(8)?,
        },
        4 => Change::Exited {
            pid: fields.u32_at(0)?,
            tid: fields.u32_at(8)?,
        },
        7 => Change::Forked {
            pid: fields.u32_at(0)?,
            parent: fields.u32_at(4)?,
            tid: fields.u32_at(8)?,
            parent_tid: fields.u32_at(12)?,
        },
        10 => Change::Mapped(mapping(misc, fields)?),
        17 => Change::KernelSymbol {
            address: fields.u64_at(0)?,
            length: fields.u32_at(8)?,
            removed: fields.u16_at(14)? & 1 != 0, // PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER
            name: fields.name_at(16)?,
        },
        _ => return None,
    })
}

fn mapping(misc: u16, fields: Fields<'_>) -> Option<NewMapping> {
    let (start, length) = (fields.u64_at(8)?, fields.u64_at(16)?);
    let mut mapping = NewMapping {
        pid: fields.u32_at(0)?,
        addresses: start..start.saturating_add(length),
        offset: fields.u64_at(24)?,
        protection: fields.u32_at(56)?,
        path: fields.name_at(64)?,
        ..NewMapping::default()
    };
    // PERF_RECORD_MISC_MMAP_BUILD_ID: a length and up to 20 bytes stand where device and inode would.
    if misc & 1 << 14 != 0 {
        let length = usize::from(*fields.0.get(32)?).min(20);
        mapping.build_id = fields
            .0
            .get(36..36 + length)
            .filter(|id| !id.is_empty())
            .map(<[u8]>::to_vec);
    } else {
        mapping.file = Some((fields.u32_at(32)?, fields.u32_at(36)?, fields.u64_at(40)?));
    }
    Some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8], time_ns: u64) -> Vec<u8> {
        let size = u16::try_from(8 + body.len() + SAMPLE_ID_LEN).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes.extend([0; 8]);
        bytes.extend(time_ns.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Check that names, forks and exits are told with their time, and that an unknown record is passed over.
    #[test]
    fn tasks() {
        let mut name = words(&[1, 2]);
        name.extend(b"cat\0\0\0\0\0");
        let mut bytes = record(3, 1 << 13, &name, 7);
        bytes.extend(record(99, 0, &[0; 16], 8));
        bytes.extend(record(7, 0, &words(&[1, 5, 2, 6, 0, 0]), 9));
        bytes.extend(record(4, 0, &words(&[1, 5, 2, 5, 0, 0]), 10));
        let mut events = Vec::new();
        parse(&bytes, &mut events);
        let changes = [
            (
                7,
                Change::Named {
                    pid: 1,
                    tid: 2,
                    exec: true,
                    name: b"cat".to_vec(),
                },
            ),
            (
                9,
                Change::Forked {
                    pid: 1,
                    tid: 2,
                    parent: 5,
                    parent_tid: 6,
                },
            ),
            (10, Change::Exited { pid: 1, tid: 2 }),
        ];
        let expected = changes.map(|(time_ns, change)| SideBandEvent { time_ns, change });
        assert_eq!(events, expected);
    }

    /// Check that a mapping with a build ID keeps it whole, and one without keeps device and inode.
    #[test]
    fn mappings() {
        let mut body = words(&[1, 1, 0x1000, 0, 0x2000, 0, 0x3000, 0]);
        body.extend([20, 0, 0, 0]);
        body.extend((0..20).collect::<Vec<u8>>());
        body.extend(words(&[5, 2]));
        body.extend(b"/bin/x\0\0");
        let mut events = Vec::new();
        parse(&record(10, 1 << 14, &body, 1), &mut events);
        parse(&record(10, 0, &body, 1), &mut events);
        let maps: Vec<_> = events
            .iter()
            .map(|event| match &event.change {
                Change::Mapped(mapping) => mapping,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            maps[0].build_id.as_deref(),
            Some(&(0..20).collect::<Vec<u8>>()[..])
        );
        assert_eq!(
            (
                maps[0].addresses.clone(),
                maps[0].offset,
                maps[0].protection
            ),
            (0x1000..0x3000, 0x3000, 5)
        );
        assert_eq!(maps[0].path, b"/bin/x");
        assert_eq!(
            (&maps[1].build_id, maps[1].file.map(|file| file.0)),
            (&None, Some(20))
        );
    }

    /// Check that no cut of a record is taken for a whole one, and none panics.
    #[test]
    fn cut() {
        let bytes = record(3, 0, &words(&[1, 2, 0x6161_6161, 0]), 7);
        for end in 0..bytes.len() {
            let mut events = Vec::new();
            parse(&bytes[..end], &mut events);
            assert_eq!(events, []);
        }
    }
}
