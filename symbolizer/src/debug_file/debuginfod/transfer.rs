//! One transfer by curl, bounded in time and size. Knows no cache and no build IDs.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::settings::Settings;

/// The program.
pub(super) const PROGRAM: &str = "curl";
/// Time between two looks at a running transfer.
const LOOK: Duration = Duration::from_millis(20);
/// Below this a transfer counts as standing still, in bytes a second; as elfutils' client has it.
const SLOW: &str = "102400";
/// Time for making a connection.
const CONNECT: Duration = Duration::from_secs(15);

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The file is there.
    Arrived,
    /// The server does not have it.
    Unknown,
    /// The file is larger than accepted.
    TooLarge,
    /// The server, or the way to it, failed.
    Failed,
}

impl Answer {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::Unknown => "not known there",
            Self::TooLarge => "too large",
            Self::Failed => "failed",
        }
    }
}

/// Fetch `url` into the file `target`, until `deadline` at the latest; `watch` is told the bytes that have come.
pub(super) fn fetch(
    settings: &Settings,
    url: &str,
    target: &Path,
    deadline: Instant,
    watch: &dyn Fn(u64),
) -> Answer {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Answer::Failed;
    }
    let Ok(mut child) = command(settings, url, target, left).spawn() else {
        return Answer::Failed;
    };
    let mut answer = None;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => thread::sleep(LOOK),
            Err(_) => return stop(child, Answer::Failed),
        }
        let bytes = target.metadata().map_or(0, |found| found.len());
        watch(bytes);
        // A server that does not say how much it sends, and a curl that does not count then.
        if bytes > settings.max_size {
            answer = Some(Answer::TooLarge);
        } else if Instant::now() > deadline + CONNECT {
            answer = Some(Answer::Failed);
        }
        if let Some(answer) = answer {
            return stop(child, answer);
        }
    };
    let mut code = String::new();
    if let Some(mut out) = child.stdout.take() {
        let _ = out.read_to_string(&mut code);
    }
    match (status.code(), code.trim()) {
        (Some(0), "200") => Answer::Arrived,
        (Some(0), "404" | "410") => Answer::Unknown,
        // The largest size was told to the server, which may refuse by it.
        (Some(63), _) | (Some(0), "406" | "413") => Answer::TooLarge,
        _ => Answer::Failed,
    }
}

fn stop(mut child: Child, answer: Answer) -> Answer {
    let _ = child.kill();
    let _ = child.wait();
    answer
}

fn command(settings: &Settings, url: &str, target: &Path, left: Duration) -> Command {
    let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
    let mut command = Command::new(PROGRAM);
    // First: no settings of the user's own, which might write elsewhere.
    command.arg("--disable");
    command.args(["--silent", "--globoff", "--location", "--max-redirs", "5"]);
    command.args(["--proto", "=http,https", "--proto-redir", "=http,https"]);
    command.args(["--connect-timeout", &seconds(settings.timeout.min(CONNECT))]);
    command.args(["--speed-limit", SLOW, "--speed-time"]);
    command.arg(settings.timeout.as_secs().to_string());
    command.args(["--max-time", &seconds(left)]);
    command.args(["--max-filesize", &settings.max_size.to_string()]);
    command.args([
        "--user-agent",
        concat!("rawstack/", env!("CARGO_PKG_VERSION")),
    ]);
    if settings.tell_size {
        let header = format!("X-DEBUGINFOD-MAXSIZE: {}", settings.max_size);
        command.args(["--header", &header]);
    }
    if let Some(file) = &settings.headers_file {
        command.arg("--header").arg(format!("@{}", file.display()));
    }
    command.args(["--write-out", "%{http_code}", "--output"]);
    command.arg(target).arg(url);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}
