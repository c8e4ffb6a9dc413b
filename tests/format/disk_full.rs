//! Disks that are full, writers that fail, files that exist.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rawstack_format::record::Record;
use rawstack_format::{ArchiveFile, Counters, Error, SYNC_INTERVAL, Writer};
use tempfile::TempDir;

use crate::common::{Rng, options, read, recursion};
use crate::every_kind::every_kind;

/// A writer that takes whole chunks but for the calls that `fails` names.
struct Failing<F> {
    bytes: Vec<u8>,
    call: usize,
    fails: F,
}

impl<F: FnMut(usize) -> bool> Write for Failing<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call += 1;
        if (self.fails)(self.call - 1) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Write the records, each until it is taken or failed twice; gives those that were taken.
fn write_with_retry<W: Write>(writer: &mut Writer<W>, records: &[Record]) -> Vec<Record> {
    let mut taken = Vec::new();
    for record in records {
        for _ in 0..2 {
            match writer.write(record, Counters::default()) {
                Ok(_) => {
                    taken.push(record.clone());
                    break;
                }
                Err(error) => assert!(error.is_out_of_space(), "{error}"),
            }
        }
    }
    taken
}

/// Check that a failure at any one write loses nothing when it is tried again: same numbers, no gap.
#[test]
fn failure_at_every_write() {
    let records = every_kind();
    for failing in 1..=records.len() {
        let inner = Failing {
            bytes: Vec::new(),
            call: 0,
            fails: |call| call == failing,
        };
        let mut writer = Writer::new(inner, options()).unwrap();
        let taken = write_with_retry(&mut writer, &records);
        assert_eq!(taken, records);
        let bytes = writer.finish().unwrap().bytes;
        let (chunks, damage) = read(&bytes);
        assert!(damage.is_none(), "failing {failing}: {damage:?}");
        let got: Vec<Record> = chunks
            .into_iter()
            .filter_map(|chunk| chunk.record)
            .collect();
        assert_eq!(got, records);
    }
    let inner = Failing {
        bytes: Vec::new(),
        call: 0,
        fails: |call| call == 0,
    };
    assert!(Writer::new(inner, options()).unwrap_err().is_out_of_space());
}

/// A directory on a file system of one mebibyte; `None` where this process may not mount.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(dir.path())
            .output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).status().ok();
    }
}

/// Check on a real full disk that every whole chunk stays, that nothing half-written stays behind it, and that writing
/// goes on in the same file when there is room again.
#[test]
fn small_disk() {
    let Some(disk) = SmallDisk::new() else {
        eprintln!("skipped: mounting a tmpfs is not permitted");
        return;
    };
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![1; 700_000]).unwrap();
    let path = disk.0.path().join("a.rawstack");
    let mut writer = Writer::new(ArchiveFile::create(&path, false).unwrap(), options()).unwrap();
    let records = recursion(60, &mut Rng(9));
    let mut taken = 0;
    let error = loop {
        match writer.write(&records[taken], Counters::default()) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    assert!(
        error
            .to_string()
            .contains("the archive ends with the chunk before it"),
        "{error}"
    );
    assert_eq!(fs::metadata(&path).unwrap().len(), writer.position());
    let (chunks, damage) = read(&fs::read(&path).unwrap());
    assert!(
        damage.is_none() && chunks.len() == taken && taken > 0,
        "{taken}: {damage:?}"
    );
    fs::remove_file(filler).unwrap();
    for record in &records[taken + 5..taken + 10] {
        writer.write(record, Counters::default()).unwrap();
    }
    let mut file = writer.finish().unwrap();
    file.sync().unwrap();
    let (chunks, damage) = read(&fs::read(&path).unwrap());
    assert!(damage.is_none() && chunks.len() == taken + 6, "{damage:?}");
}

/// Check that a new file is its owner's alone and that what exists is neither replaced nor followed.
#[test]
fn creation() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rawstack");
    ArchiveFile::create(&path, false).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let error = ArchiveFile::create(&path, false).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    for force in [false, true] {
        let refuse = |name: &Path| {
            let error = ArchiveFile::create(name, force).unwrap_err();
            assert!(matches!(error, Error::NotRegular { .. }), "{error}");
        };
        refuse(dir.path());
        for target in [path.as_path(), Path::new("nowhere")] {
            let link = dir.path().join("link");
            symlink(target, &link).unwrap();
            refuse(&link);
            fs::remove_file(link).unwrap();
        }
    }
    let error = ArchiveFile::create(&dir.path().join("no/such/a.rawstack"), true).unwrap_err();
    assert!(matches!(error, Error::Create { .. }), "{error}");
}

/// Check that `force` makes a new file with mode 0600 and leaves the old file's other names alone.
#[test]
fn forced_creation() {
    let dir = TempDir::new().unwrap();
    let [path, other] = ["a", "b"].map(|name| dir.path().join(name));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::hard_link(&path, &other).unwrap();
    let mut file = ArchiveFile::create(&path, true).unwrap();
    file.write_all(b"new").unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "old");
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
}

/// Check that syncing is due once written bytes are five seconds old, and not without any.
#[test]
fn syncing() {
    let dir = TempDir::new().unwrap();
    let mut file = ArchiveFile::create(&dir.path().join("a"), false).unwrap();
    let later = |seconds| Instant::now() + Duration::from_secs(seconds);
    assert!(!file.sync_if_due(later(100)).unwrap());
    file.write_all(b"bytes").unwrap();
    assert!(!file.sync_if_due(later(1)).unwrap());
    assert!(file.sync_if_due(later(5)).unwrap());
    assert!(!file.sync_if_due(later(100)).unwrap());
    assert_eq!(
        (SYNC_INTERVAL, file.len(), file.is_empty()),
        (Duration::from_secs(5), 5, false)
    );
}
