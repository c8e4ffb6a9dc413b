//! `rawstack tui` in a real terminal: tmux is one, and says what stands on its screen.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::golden::folder;
use super::run::{rawstack, succeed};

/// Time for a screen to come; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal of its own, with a shell that runs the program and then says how it ended.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(folder: &Path, environment: &str, options: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let terminal = Self {
            socket: format!("rawstack-test-{}-{number}", std::process::id()),
        };
        let program = env!("CARGO_BIN_EXE_rawstack");
        let line = format!(
            "echo what was here; {environment} XDG_CACHE_HOME=/dev/null {program} tui -q golden.rawstack --symbol-dir debug {options}; \
             echo \"ended with $?\"; sleep 60"
        );
        let size = ["-x", "100", "-y", "24"];
        let made = terminal.tmux(
            &[
                &[
                    "-u",
                    "-f",
                    "/dev/null",
                    "new-session",
                    "-d",
                    "-c",
                    folder.to_str().unwrap(),
                ],
                &size[..],
                &[&line],
            ]
            .concat(),
        );
        assert!(made.status.success(), "{made:?}");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-L", &self.socket])
            .args(args)
            .output()
            .unwrap()
    }

    /// What stands on the screen, with colours if `colors`.
    fn screen(&self, colors: bool) -> String {
        let options: &[&str] = if colors {
            &["capture-pane", "-p", "-e"]
        } else {
            &["capture-pane", "-p"]
        };
        String::from_utf8(self.tmux(options).stdout).unwrap()
    }

    /// The screen, once it holds `text`.
    fn until(&self, text: &str) -> String {
        self.until_it(&format!("{text:?}"), &|screen| screen.contains(text))
    }

    /// The screen, once it is as `wanted`: what stands there before a key is not what comes of it.
    fn until_it(&self, what: &str, wanted: &dyn Fn(&str) -> bool) -> String {
        let start = Instant::now();
        let mut before = String::new();
        loop {
            let screen = self.screen(false);
            // Twice the same: it is not being drawn.
            if wanted(&screen) && screen == before {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "no {what} in:\n{screen}");
            before = screen;
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn report(options: &[&str]) -> Value {
    let base = [
        "report",
        "-q",
        "golden.rawstack",
        "--symbol-dir",
        "debug",
        "--json",
    ];
    serde_json::from_str(&succeed(folder(), &[&base[..], options].concat())).unwrap()
}

/// Milliseconds as the screens show them.
fn shown(weight: &Value) -> String {
    format!("{:.1} ms", weight.as_f64().unwrap() / 1e6)
}

/// Check that the table is that of report, that callers and callees add up, and that one can go back.
#[test]
fn functions_and_callers() {
    let report = report(&[]);
    let terminal = Terminal::start(folder(), "LC_ALL=C.UTF-8", "");
    let screen = terminal.until("self↓");
    assert!(
        screen.contains(&format!("{} of cpu-clock", shown(&report["total"]))),
        "{screen}"
    );
    let rows = report["rows"].as_array().unwrap();
    let lines: Vec<&str> = screen.lines().skip(4).take(rows.len().min(19)).collect();
    for (line, row) in lines.iter().zip(rows) {
        let name = row["name"].as_str().unwrap();
        let numbers = [&row["self"], &row["total"]].map(|weight| {
            if weight == 0 {
                "0 ns".to_owned()
            } else {
                shown(weight)
            }
        });
        assert!(
            line.contains(name) && numbers.iter().all(|number| line.contains(number)),
            "{line} is not {row}"
        );
    }
    terminal.press(&["/", "m", "i", "d", "d", "l", "e", "Enter"]);
    terminal.until("Esc ends the search");
    terminal.press(&["Enter"]);
    let screen = terminal.until("called by");
    let middle = rows.iter().find(|row| row["name"] == "middle").unwrap();
    assert!(
        screen.contains(&format!("{}  self", shown(&middle["total"]))),
        "{screen}"
    );
    assert!(screen.contains("innermost"), "{screen}");
    terminal.press(&["BSpace"]);
    terminal.until("self↓");
    terminal.press(&["Escape"]);
    terminal.until("? keys");
    terminal.press(&["s", "s"]);
    let screen = terminal.until("function↓");
    let mut names: Vec<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let first = screen.lines().nth(4).unwrap();
    assert!(first.contains(names[0]), "{first} is not {}", names[0]);
}

/// Check the flame graph's boxes, zoom and back, and that filters give what the options of report give.
#[test]
fn flame_graph_and_filters() {
    let terminal = Terminal::start(folder(), "LC_ALL=C.UTF-8", "");
    terminal.until("self↓");
    terminal.press(&["3"]);
    terminal.until("▏all");
    terminal.press(&["Down"]);
    let named = |screen: &str| {
        let line = screen.lines().nth(21)?;
        line.split("  ").next().map(str::to_owned)
    };
    let chosen = terminal.until_it("another box", &|screen| {
        named(screen).is_some_and(|name| name != "all")
    });
    let name = named(&chosen).unwrap();
    terminal.press(&["Enter"]);
    // Zoomed into, a box is as wide as the screen: nothing is beside it.
    let boxes = |screen: &str| {
        screen
            .lines()
            .nth(4)
            .map_or(0, |line| line.matches('▏').count())
    };
    let zoomed = terminal.until_it("one box", &|screen| boxes(screen) == 1);
    assert!(
        zoomed
            .lines()
            .nth(4)
            .unwrap()
            .starts_with(&format!("▏{name}")),
        "{zoomed}"
    );
    terminal.press(&["BSpace"]);
    terminal.until_it("several boxes", &|screen| boxes(screen) > 1);

    terminal.press(&["4", "Space"]);
    let screen = terminal.until("[x]");
    let process = screen.lines().find(|line| line.contains("[x]")).unwrap();
    let pid = process
        .rsplit_once("pid ")
        .unwrap()
        .1
        .trim_end()
        .trim_end_matches(')');
    let part = report(&["--pid", pid]);
    assert!(part["total"].as_u64() < report(&[])["total"].as_u64());
    assert!(
        screen.contains(&format!(
            "{} of cpu-clock  (filtered",
            shown(&part["total"])
        )),
        "{screen}"
    );
    terminal.press(&["c"]);
    terminal.until(&format!("{} of cpu-clock", shown(&report(&[])["total"])));
}

/// Check that keys take time off both ends, that what is left is what `report --time` says, and that all comes back.
#[test]
fn spans_of_time() {
    let terminal = Terminal::start(folder(), "LC_ALL=C.UTF-8", "");
    terminal.until("self↓");
    terminal.press(&["[", "[", "]"]);
    let is_cut = |screen: &str| screen.contains("(filtered: 4)  4.0 ms..");
    let screen = terminal.until_it("a span of time", &is_cut);
    let head = screen.lines().next().unwrap();
    let span = head.rsplit("  ").next().unwrap().replace(' ', "");
    let part = report(&["--time", &span]);
    assert!(part["total"].as_u64() < report(&[])["total"].as_u64());
    let total = format!("{} of cpu-clock", shown(&part["total"]));
    assert!(head.contains(&total), "{head} is not {total} in {span}");
    terminal.press(&["c"]);
    let all = format!("{} of cpu-clock", shown(&report(&[])["total"]));
    terminal.until_it("all", &|screen| {
        screen.contains(&all) && !screen.contains("filtered")
    });
}

/// Check that the terminal is given back as it was, that the program ends with 0, and that a new size is drawn for.
#[test]
fn given_back() {
    let terminal = Terminal::start(folder(), "LC_ALL=C.UTF-8", "");
    assert!(!terminal.until("self↓").contains("what was here"));
    terminal.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    terminal.press(&["?"]);
    terminal.until("Keys");
    terminal.press(&["C-c"]);
    let screen = terminal.until("ended with 0");
    assert!(
        screen.contains("what was here") && !screen.contains("self↓"),
        "{screen}"
    );
}

/// Check that nothing but ASCII is written where the locale has no more, and no colour where NO_COLOR asks for none.
#[test]
fn plain_terminals() {
    let terminal = Terminal::start(folder(), "LC_ALL=C NO_COLOR=1", "");
    for (key, wanted) in [
        ("1", "selfv"),
        ("2", "called by"),
        ("3", "|all"),
        ("4", "Space chooses"),
    ] {
        terminal.press(&[key]);
        terminal.until(wanted);
        let screen = terminal.screen(true);
        assert!(screen.is_ascii(), "{screen}");
        // 39 and 49 are the terminal's own.
        let colors = (30..39).chain(40..49).chain(90..108);
        for color in colors {
            assert!(
                !screen.contains(&format!("\u{1b}[{color}m")),
                "colour {color} in {screen:?}"
            );
        }
    }
}

/// Check that without a terminal, and for an archive from standard input, one line says what to do.
#[test]
fn no_terminal() {
    let ran = rawstack(folder(), &["tui", "golden.rawstack"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "rawstack: failed to open the terminal: input or output is another file; use `rawstack report`\n"
    );
}
