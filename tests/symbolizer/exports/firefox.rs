//! Firefox Profiler, read by its own command line program, which has the page's code.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::consumers::{Totals, consumers, export, output, report};

/// A profile that is loaded; the program keeps it in a process that ends with this.
struct Session<'w> {
    home: &'w Path,
}

impl<'w> Session<'w> {
    fn load(home: &'w Path, file: &Path) -> Self {
        let session = Self { home };
        // It gives its own daemon half a second to start, which is not enough where much else runs.
        for _ in 0..20 {
            let tried = session.command(&["load"]).arg(file).output().unwrap();
            if tried.status.success() {
                return session;
            }
            let told = String::from_utf8_lossy(&tried.stderr);
            let slow = told.split("may still be running as pid ").nth(1);
            let Some(pid) = slow.and_then(|rest| rest.split('.').next()) else {
                panic!("profiler-cli load: {told}");
            };
            let _ = Command::new("kill").args(["-KILL", pid]).output();
        }
        panic!("profiler-cli load: never ready");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(consumers().join("js/node_modules/.bin/profiler-cli"));
        command.args(args).env("HOME", self.home);
        command
    }

    fn ask(&self, args: &[&str]) -> Value {
        let text = output(self.command(args).arg("--json"));
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // What a failed test says is worth more than that nothing could be stopped.
        let _ = self.command(&["stop", "--all"]).output();
    }
}

/// Milliseconds of the golden archive, whose samples weigh whole ones, in nanoseconds.
fn nanoseconds(ms: &Value) -> u64 {
    (0u32..=1_000)
        .find(|&whole| ms.as_f64() == Some(f64::from(whole)))
        .map_or(u64::MAX, |whole| u64::from(whole) * 1_000_000)
}

fn totals(session: &Session<'_>, thread: &str) -> Totals {
    let args = ["thread", "functions", "--include-idle", "--limit", "0"];
    let table = session.ask(&[&args[..], &["--thread", thread]].concat());
    let mut totals = Totals::default();
    for function in table["functions"].as_array().unwrap() {
        let name = function["name"].as_str().unwrap();
        let own = nanoseconds(&function["selfSamples"]);
        totals.total += own;
        if own > 0 {
            totals.own.insert(name.to_owned(), own);
        }
        let total = nanoseconds(&function["totalSamples"]);
        totals.cumulative.insert(name.to_owned(), total);
    }
    totals
}

/// Check that each thread is there with its names and process, and that its functions have the report's times.
#[test]
fn totals_are_the_report() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "firefox", "golden.json.gz", &[]);
    let session = Session::load(work.path(), &file);
    let list = session.ask(&["thread", "list"]);
    let threads: BTreeMap<u64, &Value> = (list["threads"].as_array().unwrap().iter())
        .map(|thread| (thread["tid"].as_u64().unwrap(), thread))
        .collect();
    assert_eq!(threads.len(), 3);
    assert_eq!(threads[&101]["name"], "worker");
    assert_eq!(threads[&101]["processName"], "server");
    assert_eq!(threads[&101]["pid"], "100");
    for (tid, thread) in threads {
        let found = totals(&session, thread["threadHandle"].as_str().unwrap());
        assert_eq!(found, report(&["--tid", &tid.to_string()]), "thread {tid}");
    }
}
