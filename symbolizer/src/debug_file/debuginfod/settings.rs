//! What the environment says about debuginfod: the variables that elfutils' client knows.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::debug_file::places::client_cache;

/// Where distributions name their servers.
const URL_FOLDER: &str = "/etc/debuginfod";
/// A transfer is given up when it brings less than 100 KiB a second for this long.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Time for all transfers of one run together.
const DEADLINE: Duration = Duration::from_secs(600);
/// Largest file that is accepted, in bytes, where nothing else is asked for.
const MAX_SIZE: u64 = 16 << 30;
/// Repetitions after a failure.
const RETRIES: u32 = 2;

/// How servers are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URLs, asked in this order.
    pub servers: Vec<String>,
    /// Words of `DEBUGINFOD_URLS` that cannot be obeyed.
    pub refused: Vec<String>,
    /// Folder that downloads are kept in.
    pub cache: PathBuf,
    /// Time in which a transfer may be slow.
    pub timeout: Duration,
    /// Time for all transfers together.
    pub deadline: Duration,
    /// Largest file, in bytes.
    pub max_size: u64,
    /// Whether servers are told the largest size.
    pub tell_size: bool,
    /// Repetitions after a failure.
    pub retries: u32,
    /// File with headers that are sent along.
    pub headers_file: Option<PathBuf>,
    /// Whether each request is told.
    pub verbose: bool,
}

impl Settings {
    /// Read the environment; nothing where there is no server or no place to keep files.
    pub fn from_environment() -> Option<Self> {
        Self::read(&|name| env::var_os(name), Path::new(URL_FOLDER))
    }

    fn read(variable: &dyn Fn(&str) -> Option<OsString>, url_folder: &Path) -> Option<Self> {
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let urls = text("DEBUGINFOD_URLS").unwrap_or_else(|| urls_of_host(url_folder));
        let (servers, refused) = servers(&urls);
        if servers.is_empty() && refused.is_empty() {
            return None;
        }
        let positive = |name: &str| number(name).filter(|&value| value > 0);
        let seconds = |name: &str| positive(name).map(Duration::from_secs);
        let max_size = positive("DEBUGINFOD_MAXSIZE");
        Some(Self {
            servers,
            refused,
            cache: client_cache(variable)?,
            timeout: seconds("DEBUGINFOD_TIMEOUT").unwrap_or(TIMEOUT),
            deadline: seconds("DEBUGINFOD_MAXTIME").unwrap_or(DEADLINE),
            max_size: max_size.unwrap_or(MAX_SIZE),
            tell_size: max_size.is_some(),
            retries: number("DEBUGINFOD_RETRY_LIMIT")
                .map_or(RETRIES, |limit| u32::try_from(limit).unwrap_or(RETRIES)),
            headers_file: text("DEBUGINFOD_HEADERS_FILE")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            verbose: text("DEBUGINFOD_VERBOSE").is_some_and(|value| !value.is_empty()),
        })
    }
}

/// What the files `*.urls` of the host say.
fn urls_of_host(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: BTreeSet<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some("urls".as_ref()))
        .collect();
    let texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.collect::<Vec<_>>().join(" ")
}

/// Servers, and words that cannot be obeyed.
///
/// `ima:enforcing` asks for signatures of what the servers behind it send. They are not checked here, so those servers are
/// not asked.
fn servers(urls: &str) -> (Vec<String>, Vec<String>) {
    let (mut servers, mut refused) = (Vec::new(), Vec::new());
    let mut enforcing = false;
    for word in urls.split_whitespace() {
        if let Some(policy) = word.strip_prefix("ima:") {
            enforcing = policy != "ignore" && policy != "permissive";
        } else if enforcing {
            refused.push(format!("{word} (ima:enforcing is not supported)"));
        } else if ["http://", "https://"]
            .iter()
            .any(|scheme| word.starts_with(scheme))
        {
            let server = word.trim_end_matches('/').to_owned();
            if !servers.contains(&server) {
                servers.push(server);
            }
        } else {
            refused.push(format!("{word} (neither http nor https)"));
        }
    }
    (servers, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)], folder: &Path) -> Option<Settings> {
        let of = |name: &str| {
            let found = set.iter().find(|(held, _)| *held == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::read(&of, folder)
    }

    /// Check each variable, and what holds without it.
    #[test]
    fn each_variable() {
        let none = Path::new("/nonexistent");
        let base = [("HOME", "/h"), ("DEBUGINFOD_URLS", "http://a/x/ https://b")];
        let plain = read(&base, none).unwrap();
        assert_eq!(plain.servers, ["http://a/x", "https://b"]);
        assert_eq!(plain.cache, Path::new("/h/.cache/debuginfod_client"));
        assert_eq!((plain.timeout, plain.deadline), (TIMEOUT, DEADLINE));
        assert_eq!(
            (plain.max_size, plain.retries, plain.tell_size),
            (MAX_SIZE, 2, false)
        );
        let more = [
            ("DEBUGINFOD_CACHE_PATH", "/c"),
            ("DEBUGINFOD_TIMEOUT", "5"),
            ("DEBUGINFOD_MAXTIME", "7"),
            ("DEBUGINFOD_MAXSIZE", "1000"),
            ("DEBUGINFOD_RETRY_LIMIT", "0"),
            ("DEBUGINFOD_HEADERS_FILE", "/headers"),
            ("DEBUGINFOD_VERBOSE", "1"),
        ];
        let set = read(&[&base[..], &more].concat(), none).unwrap();
        assert_eq!(set.cache, Path::new("/c"));
        assert_eq!(set.timeout, Duration::from_secs(5));
        assert_eq!(set.deadline, Duration::from_secs(7));
        assert_eq!((set.max_size, set.retries, set.tell_size), (1000, 0, true));
        assert_eq!(set.headers_file.as_deref(), Some(Path::new("/headers")));
        assert!(set.verbose);
        assert_eq!(read(&[("HOME", "/h")], none), None);
    }

    /// Check that the host's own list stands in where the variable is not set, and not where it is empty.
    #[test]
    fn list_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.urls"), "https://second\n").unwrap();
        fs::write(folder.path().join("a.urls"), "https://first\n").unwrap();
        fs::write(folder.path().join("c.certpath"), "/certs\n").unwrap();
        let found = read(&[("HOME", "/h")], folder.path()).unwrap();
        assert_eq!(found.servers, ["https://first", "https://second"]);
        assert_eq!(
            read(&[("HOME", "/h"), ("DEBUGINFOD_URLS", "")], folder.path()),
            None
        );
    }

    /// Check that servers which must be checked in a way that is not known here are not asked.
    #[test]
    fn refused_words() {
        let (asked, refused) =
            servers("https://a ima:enforcing https://b ima:ignore https://c file:///d");
        assert_eq!(asked, ["https://a", "https://c"]);
        assert_eq!(refused.len(), 2);
        assert!(refused[0].starts_with("https://b ") && refused[1].starts_with("file:///d "));
    }
}
