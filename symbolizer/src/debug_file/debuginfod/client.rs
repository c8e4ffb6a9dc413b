//! Which server is asked for what, what is kept, and what is not asked again.

use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rawstack_format::id::BuildId;

use super::settings::Settings;
use super::transfer::{self, Answer};
use crate::debug_file::elf::ElfFile;
use crate::debug_file::files::{Outcome, open_candidate};

/// Failures in a row after which a server is not asked any more.
const BREAKER: u32 = 3;
/// Time for which it is believed that no server has a file, unless the cache says otherwise.
const MISS_TIME: Duration = Duration::from_secs(600);
/// Time before a repetition, and with each more of it.
const PAUSE: Duration = Duration::from_millis(200);

/// Why no server can be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No server is named.
    #[error(
        "failed to ask debuginfod servers: DEBUGINFOD_URLS names none; set it to the URLs of your distribution's"
    )]
    NoServer,
    /// The program for transfers is missing.
    #[error("failed to ask debuginfod servers: curl is not on PATH; install it")]
    NoCurl,
}

/// What goes on with a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// So many bytes have come.
    Coming(u64),
    /// The transfer ended, in a word.
    Ended(&'static str),
}

/// Told of each URL what goes on with it.
pub type Watch = dyn Fn(&str, Step) + Send + Sync;

/// A client.
pub struct Client {
    settings: Settings,
    servers: Vec<Server>,
    deadline: Instant,
    next: AtomicU64,
    watch: Box<Watch>,
}

#[derive(Debug)]
struct Server {
    url: String,
    failures: AtomicU32,
}

/// What was asked, and where the file is if it is there.
#[derive(Debug, Default)]
pub(in crate::debug_file) struct Fetched {
    pub(in crate::debug_file) file: Option<ElfFile>,
    /// URLs with what came of them.
    pub(in crate::debug_file) tried: Vec<(String, Outcome)>,
}

impl Client {
    /// A client whose time for all transfers together begins now.
    pub fn new(settings: Settings, watch: Box<Watch>) -> Result<Self, ClientError> {
        if settings.servers.is_empty() {
            return Err(ClientError::NoServer);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&path).any(|folder| folder.join(transfer::PROGRAM).is_file()) {
            return Err(ClientError::NoCurl);
        }
        let servers = settings.servers.iter().map(|url| Server {
            url: url.clone(),
            failures: AtomicU32::new(0),
        });
        Ok(Self {
            servers: servers.collect(),
            deadline: Instant::now() + settings.deadline,
            next: AtomicU64::new(0),
            watch,
            settings,
        })
    }

    /// Get the file of `kind` (`debuginfo`, `executable`) with `build_id`, and keep it.
    pub(in crate::debug_file) fn fetch(&self, build_id: &BuildId, kind: &str) -> Fetched {
        let mut fetched = Fetched::default();
        let folder = self.settings.cache.join(build_id.to_string());
        let place = folder.join(kind);
        if self.is_known_miss(&place) {
            let told = format!("{} (asked before)", place.display());
            fetched.tried.push((told, Outcome::Absent));
            return fetched;
        }
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        if made.is_err() {
            let told = folder.display().to_string();
            fetched.tried.push((told, Outcome::Unreadable));
            return fetched;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let target = folder.join(format!(".rawstack-{}-{number}", process::id()));
        let mut unknown = 0;
        for server in &self.servers {
            let url = format!("{}/{build_id}/{kind}", base(&server.url));
            let outcome = match self.ask(server, &url, &target) {
                Answer::Arrived => keep(build_id, &target, &place).map_or_else(
                    |outcome| outcome,
                    |file| {
                        fetched.file = Some(file);
                        Outcome::Found
                    },
                ),
                Answer::Unknown => {
                    unknown += 1;
                    Outcome::Absent
                }
                Answer::TooLarge | Answer::Failed => Outcome::Failed,
            };
            let _ = fs::remove_file(&target);
            fetched.tried.push((url, outcome));
            if fetched.file.is_some() {
                return fetched;
            }
        }
        if unknown == self.servers.len() {
            remember_miss(&place);
        }
        fetched
    }

    /// Ask one server, again after failures, and not at all after many.
    fn ask(&self, server: &Server, url: &str, target: &Path) -> Answer {
        for attempt in 0..=self.settings.retries {
            if server.failures.load(Ordering::Relaxed) >= BREAKER {
                return Answer::Failed;
            }
            if attempt > 0 {
                thread::sleep(PAUSE * attempt);
            }
            // The name is new, so this fails where a link waits for it.
            let created = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(target);
            if created.is_err() && fs::remove_file(target).is_err() {
                return Answer::Failed;
            }
            let watch = |bytes| (self.watch)(url, Step::Coming(bytes));
            let answer = transfer::fetch(&self.settings, url, target, self.deadline, &watch);
            (self.watch)(url, Step::Ended(answer.name()));
            if answer != Answer::Failed {
                server.failures.store(0, Ordering::Relaxed);
                return answer;
            }
            server.failures.fetch_add(1, Ordering::Relaxed);
        }
        Answer::Failed
    }

    /// Whether servers said not long ago that they do not have what belongs to `place`.
    fn is_known_miss(&self, place: &Path) -> bool {
        let Ok(found) = place.metadata() else {
            return false;
        };
        let set = fs::read_to_string(self.settings.cache.join("cache_miss_s"));
        let set = set.ok().and_then(|text| text.trim().parse().ok());
        let time = set.map_or(MISS_TIME, Duration::from_secs);
        let age = found
            .modified()
            .ok()
            .and_then(|time| SystemTime::now().duration_since(time).ok());
        if found.len() == 0 && age.is_none_or(|age| age < time) {
            return true;
        }
        if found.len() == 0 {
            let _ = fs::remove_file(place);
        }
        false
    }
}

/// A server's URL up to where build IDs follow.
fn base(url: &str) -> String {
    if url.ends_with("/buildid") {
        url.to_owned()
    } else {
        format!("{url}/buildid")
    }
}

/// Keep what came as `place`, if it is what was asked for.
fn keep(build_id: &BuildId, target: &Path, place: &PathBuf) -> Result<ElfFile, Outcome> {
    let file = open_candidate(target)?;
    if file.build_id.as_ref() != Some(build_id) {
        return Err(Outcome::OtherBuild);
    }
    fs::rename(target, place).map_err(|_| Outcome::Unreadable)?;
    open_candidate(place)
}

/// An empty file without permissions stands for what no server has, as elfutils' client does it.
fn remember_miss(place: &Path) {
    let _ = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o0)
        .open(place);
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}
