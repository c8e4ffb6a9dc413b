//! A folder of earlier results, private to the user and bounded in size. Knows names and bytes, not what they mean.
//!
//! Several processes may use it at once: an entry is written aside and renamed into its place, never changed; what is
//! read is checked first. A cache that cannot be used is as good as an empty one, so nothing here fails a command.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use flate2::Crc;
use sha2::{Digest, Sha256};

use crate::debug_file::mmap::FileBytes;

/// Bytes that all entries together may take.
const LIMIT: u64 = 1 << 30;
/// Part of the limit that one entry may take, as a divisor.
const ENTRY_PART: u64 = 4;
/// Part of the limit that is written before the folder is gone through again, as a divisor.
const LOOK_PART: u64 = 16;
/// First bytes of an entry; the last one is the layout's version.
const MAGIC: [u8; 8] = *b"RSCACHE\x01";
/// Magic, length, checksum, nothing.
const HEADER: usize = 24;
/// End of the names of entries, and of what is being written.
const ENTRY: &str = "answers";
const ASIDE: &str = "aside";
/// What was written aside so long ago belongs to a process that is gone.
const ABANDONED: Duration = Duration::from_secs(3600);
/// An entry's time is set anew when it is used and older than this.
const TOUCH: Duration = Duration::from_secs(3600);

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
    /// Bytes that this process wrote since it last looked at all entries.
    unseen: Arc<AtomicU64>,
}

/// Name of an entry: a digest of everything that its content depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

/// Collects what a key depends on.
#[derive(Debug)]
pub struct KeyBuilder(Sha256);

/// What a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries.
    pub entries: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit: u64,
}

/// A file of the cache: path, bytes, time of the last use, whether it is an entry.
struct Held {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    entry: bool,
}

impl KeyBuilder {
    /// A key of this program: another build may know better.
    pub fn new() -> Self {
        let mut builder = Self(Sha256::new());
        builder.add(env!("CARGO_PKG_VERSION").as_bytes());
        let program = env::current_exe().and_then(|path| path.metadata());
        builder.add_file(program.ok().as_ref());
        builder
    }

    /// Add bytes; their number counts, so that nothing runs into its neighbour.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Add a number.
    pub fn add_number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    /// Add what tells that a file is another one, or was written anew.
    pub fn add_file(&mut self, file: Option<&fs::Metadata>) {
        let facts = file.map(file_facts);
        self.add_number(u64::from(facts.is_some()));
        facts
            .into_iter()
            .flatten()
            .for_each(|fact| self.add_number(fact));
    }

    /// The key.
    pub fn finish(self) -> Key {
        let digest = self.0.finalize();
        Key(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What tells that a file is another one, or was written anew: device, inode, size, time in seconds and nanoseconds.
pub fn file_facts(file: &fs::Metadata) -> [u64; 5] {
    let (seconds, nanoseconds) = (file.mtime(), file.mtime_nsec());
    let time = [seconds, nanoseconds].map(i64::cast_unsigned);
    [file.dev(), file.ino(), file.len(), time[0], time[1]]
}

impl Default for KeyBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// The user's own: `rawstack` below `XDG_CACHE_HOME`, else below `~/.cache`; nothing where there is no home.
    pub fn of_user() -> Option<Self> {
        let absolute = |path: PathBuf| path.is_absolute().then_some(path);
        let of = |name| env::var_os(name).map(PathBuf::from).and_then(absolute);
        let home = || of("HOME").map(|home| home.join(".cache"));
        Some(Self::new(
            of("XDG_CACHE_HOME").or_else(home)?.join("rawstack"),
        ))
    }

    /// The cache in `folder`, which is made when something is written.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            limit: LIMIT,
            unseen: Arc::new(AtomicU64::new(LIMIT)),
        }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The content of an entry, whole as it was written.
    pub fn read(&self, key: &Key) -> Option<Content> {
        self.is_own().then_some(())?;
        let path = self.path(key);
        let bytes = FileBytes::open(&path).ok()?;
        let content = bytes.get(HEADER..)?;
        (bytes.get(..HEADER)? == header(content)).then_some(())?;
        touch(&path);
        Some(Content(bytes))
    }

    /// Write an entry, or leave it: one that is too large, or a folder that cannot be written or is another user's.
    pub fn write(&self, key: &Key, content: &[u8]) {
        if content.len() as u64 <= self.limit / ENTRY_PART {
            // What cannot be kept is worked out again the next time.
            let _ = self.try_write(key, content);
        }
    }

    fn try_write(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.make_folder()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}.{ASIDE}", process::id());
        let aside = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&aside).and_then(|mut file| {
            file.write_all(&header(content))?;
            file.write_all(content)
        });
        let moved = written.and_then(|()| fs::rename(&aside, self.path(key)));
        if moved.is_err() {
            let _ = fs::remove_file(&aside);
        }
        // A recording may have a thousand modules: the folder is not gone through for each.
        let length = content.len() as u64;
        if self.unseen.fetch_add(length, Ordering::Relaxed) >= self.limit / LOOK_PART {
            self.unseen.store(0, Ordering::Relaxed);
            self.evict()?;
        }
        moved
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.{ENTRY}", key.0))
    }

    fn make_folder(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        if !self.is_own() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        if self.folder.metadata()?.mode() & 0o077 != 0 {
            fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Whether the folder is a real one and this user's: under sudo, the home is often somebody else's.
    fn is_own(&self) -> bool {
        let own = fs::metadata("/proc/self").map(|process| process.uid());
        let folder = fs::symlink_metadata(&self.folder);
        matches!((own, folder), (Ok(own), Ok(folder)) if folder.is_dir() && folder.uid() == own)
    }

    /// Entries, and what is being written; a folder that is not there is empty.
    fn held(&self) -> io::Result<Vec<Held>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let held = entries.flatten().filter_map(|entry| {
            let path = entry.path();
            let kind = path.extension()?;
            let entry_kind = kind == ENTRY;
            (entry_kind || kind == ASIDE).then_some(())?;
            let facts = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(Held {
                bytes: facts.len(),
                used: facts.modified().ok()?,
                entry: entry_kind,
                path,
            })
        });
        Ok(held.collect())
    }

    /// Remove what was not used for longest until the rest is within three quarters of the limit.
    fn evict(&self) -> io::Result<()> {
        let mut held = self.held()?;
        let now = SystemTime::now();
        for left in held.iter().filter(|held| !held.entry) {
            if now
                .duration_since(left.used)
                .is_ok_and(|age| age > ABANDONED)
            {
                let _ = fs::remove_file(&left.path);
            }
        }
        let mut bytes: u64 = held.iter().map(|held| held.bytes).sum();
        if bytes <= self.limit {
            return Ok(());
        }
        held.retain(|held| held.entry);
        held.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        for oldest in held {
            if bytes <= self.limit / 4 * 3 {
                break;
            }
            bytes = bytes.saturating_sub(oldest.bytes);
            // Another process may have been quicker.
            let _ = fs::remove_file(&oldest.path);
        }
        Ok(())
    }

    /// What it holds.
    pub fn usage(&self) -> io::Result<Usage> {
        let held = self.held()?;
        let entries = held.iter().filter(|held| held.entry);
        Ok(Usage {
            entries: entries.clone().count() as u64,
            bytes: entries.map(|held| held.bytes).sum(),
            limit: self.limit,
        })
    }

    /// Remove everything; gives what was removed.
    pub fn clear(&self) -> io::Result<Usage> {
        let before = self.usage()?;
        for held in self.held()? {
            match fs::remove_file(&held.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(before)
    }
}

/// Content of an entry.
#[derive(Debug)]
pub struct Content(FileBytes);

impl Content {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.get(HEADER..).unwrap_or_default()
    }
}

fn header(content: &[u8]) -> [u8; HEADER] {
    let mut crc = Crc::new();
    crc.update(content);
    let mut header = [0; HEADER];
    let parts: [&[u8]; 3] = [
        &MAGIC,
        &(content.len() as u64).to_le_bytes(),
        &crc.sum().to_le_bytes(),
    ];
    let bytes = parts.into_iter().flatten();
    header
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    header
}

/// Let an entry count as used now; the time is not worth a write at each use.
fn touch(path: &Path) {
    let used = path.metadata().and_then(|facts| facts.modified());
    let now = SystemTime::now();
    let old = used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > TOUCH));
    if old && let Ok(file) = File::options().append(true).open(path) {
        let _ = file.set_modified(now);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn key(number: u64) -> Key {
        let mut key = KeyBuilder::new();
        key.add_number(number);
        key.finish()
    }

    /// Check that what is written is read again, by the owner alone, and that a changed byte makes it as if not there.
    #[test]
    fn written_and_read() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::new(home.path().join("below/rawstack"));
        assert!(cache.read(&key(1)).is_none());
        assert_eq!(cache.usage().unwrap().entries, 0);
        cache.write(&key(1), b"some content");
        assert_eq!(cache.read(&key(1)).unwrap().bytes(), b"some content");
        assert!(cache.read(&key(2)).is_none());
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let path = cache.path(&key(1));
        assert_eq!((mode(cache.folder()), mode(&path)), (0o700, 0o600));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(cache.read(&key(1)).is_none());
        assert_eq!(cache.clear().unwrap().entries, 1);
        assert_eq!(cache.usage().unwrap().entries, 0);
    }

    /// Check that a folder which others may read is closed, and that one that is a link is not used.
    #[test]
    fn private_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("rawstack");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let cache = Cache::new(folder.clone());
        cache.write(&key(1), b"x");
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        let link = home.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(Cache::new(link).read(&key(1)).is_none());
    }

    /// Check that at its limit the cache drops what was not used for longest, and never takes what is too large.
    #[test]
    fn bounded() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache {
            limit: 10_000,
            ..Cache::new(home.path().join("rawstack"))
        };
        let content = [0; 2000];
        for number in 0..4 {
            cache.write(&key(number), &content);
            let file = File::options().append(true).open(cache.path(&key(number)));
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(number);
            file.unwrap().set_modified(time).unwrap();
        }
        // A use makes the oldest one the newest.
        assert!(cache.read(&key(0)).is_some());
        cache.write(&key(4), &content);
        let there: Vec<u64> = (0..5).filter(|&n| cache.read(&key(n)).is_some()).collect();
        assert_eq!(there, [0, 3, 4]);
        cache.write(&key(5), &[0; 5000]);
        assert!(cache.read(&key(5)).is_none());
    }
}
