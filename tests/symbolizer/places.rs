//! The order in which places are looked at, each by itself, and the debuginfod client against elfutils' own server.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rawstack_format::id::BuildId;
use rawstack_format::record::Module;
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::{FoundBy, Locator, ModuleFiles, Outcome, Places};
use serde_json::Value;
use tempfile::TempDir;

use super::archive::Archive;
use super::fixtures::{sources, tool};
use super::offline::recorded;
use super::pieces::compile;

/// A stripped program with a debuglink, and its debug file.
struct Parts {
    work: TempDir,
    module: Module,
}

impl Parts {
    fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
        let script = "
            set -e
            mkdir bin away
            gcc -O2 -g -Wl,--build-id work.c -o away/program
            objcopy --only-keep-debug away/program program.debug
            strip --strip-all -o bin/program away/program
            objcopy --add-gnu-debuglink=program.debug bin/program
            mv program.debug away
        ";
        compile(work.path(), "bash", &["-c", script]);
        let module = recorded(&work.path().join("bin/program"));
        Self { work, module }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.work.path().join(path)
    }

    fn id(&self) -> String {
        self.module.build_id.as_ref().unwrap().to_string()
    }

    /// Put the debug file at `path` below the work folder.
    fn put(&self, path: &str) -> PathBuf {
        self.copy("away/program.debug", path)
    }

    fn copy(&self, from: &str, path: &str) -> PathBuf {
        let target = self.at(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(self.at(from), &target).unwrap();
        target
    }

    /// Path of the debug file in a `.build-id` tree.
    fn in_tree(&self, ending: &str) -> String {
        let id = self.id();
        format!(".build-id/{}/{}{ending}", &id[..2], &id[2..])
    }

    fn places(&self) -> Places {
        Places {
            folders: vec![self.at("folder")],
            perf_cache: Some(self.at("perf")),
            system: vec![self.at("system")],
            client_cache: Some(self.at("client")),
            this_machine: true,
        }
    }

    fn locate(&self) -> ModuleFiles {
        Locator::new(self.places()).locate(&self.module)
    }
}

/// Which rule found the file with debug information.
fn rule(found: &ModuleFiles) -> Option<FoundBy> {
    let path = &found.dwarf()?.path;
    let held = found.files.iter().find(|(_, file)| file.path == *path);
    held.map(|(rule, _)| *rule)
}

/// Check the order of all places: with a debug file in each, the first is taken; without it the next, to the end.
#[test]
fn order_of_places() {
    let parts = Parts::new();
    let below = parts
        .at("bin")
        .to_str()
        .unwrap()
        .trim_start_matches('/')
        .to_owned();
    let id = parts.id();
    let order = [
        (
            FoundBy::SymbolDir,
            format!("folder/{}", parts.in_tree(".debug")),
        ),
        (
            FoundBy::SymbolDir,
            format!("folder/{}", parts.in_tree("")[10..].to_owned()),
        ),
        (
            FoundBy::SymbolDir,
            format!("folder/usr/lib/debug/{}", parts.in_tree(".debug")),
        ),
        (FoundBy::SymbolDir, format!("folder/{below}/program")),
        (FoundBy::SymbolDir, "folder/any/where/file".to_owned()),
        (
            FoundBy::PerfCache,
            format!("perf/{}/debug", parts.in_tree("")),
        ),
        (
            FoundBy::PerfCache,
            format!("perf/{}/elf", parts.in_tree("")),
        ),
        (
            FoundBy::BuildIdTree,
            format!("system/{}", parts.in_tree(".debug")),
        ),
        (FoundBy::DebugLink, "bin/program.debug".to_owned()),
        (FoundBy::DebugLink, "bin/.debug/program.debug".to_owned()),
        (FoundBy::DebugLink, format!("system/{below}/program.debug")),
        (FoundBy::ClientCache, format!("client/{id}/debuginfo")),
        (FoundBy::ClientCache, format!("client/{id}/executable")),
    ];
    for (_, path) in &order {
        parts.put(path);
    }
    for (expected, path) in &order {
        let found = parts.locate();
        let dwarf = found.dwarf().map(|file| file.path.clone());
        assert_eq!(
            (rule(&found), dwarf),
            (Some(*expected), Some(parts.at(path)))
        );
        fs::remove_file(parts.at(path)).unwrap();
    }
    // At last the recorded path, which has no debug information until the program itself is put there.
    let found = parts.locate();
    assert_eq!(rule(&found), None);
    let last = found.tried.last().unwrap();
    assert_eq!(
        (last.rule, last.outcome),
        (FoundBy::RecordedPath, Outcome::Found)
    );
    parts.copy("away/program", "bin/program");
    assert_eq!(rule(&parts.locate()), Some(FoundBy::RecordedPath));
}

/// Check perf's own layout: a link in the tree that leads to a folder with the file.
#[test]
fn perf_cache_layout() {
    let parts = Parts::new();
    let real = format!("perf/{}/{}", "opt/program", parts.id());
    parts.copy("away/program", &format!("{real}/elf"));
    let link = parts.at(&format!("perf/{}", parts.in_tree("")));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(format!("../../opt/program/{}", parts.id()), link).unwrap();
    assert_eq!(rule(&parts.locate()), Some(FoundBy::PerfCache));
    // The same folder, named on the command line.
    let places = Places::only(vec![parts.at("perf")]);
    let found = Locator::new(places).locate(&parts.module);
    assert_eq!(rule(&found), Some(FoundBy::SymbolDir));
}

/// Check that a debug file of another build at the end of a debuglink is passed over for the next place, that the checksum
/// counts only where there is no build ID, and that a link which names its own file ends.
#[test]
fn debuglink_of_another_build() {
    let parts = Parts::new();
    let other = "gcc -g -O1 -Wl,--build-id -x c - -o away/other <<< 'int main(void) { return 3; }'";
    compile(parts.work.path(), "bash", &["-c", other]);
    parts.copy("away/other", "bin/program.debug");
    let right = parts.put("bin/.debug/program.debug");
    let found = parts.locate();
    assert_eq!(
        found.dwarf().map(|file| file.path.clone()),
        Some(right.clone())
    );
    assert!(found.mismatch);
    // The right build ID with a wrong checksum is right: files are changed after the link was made (by dwz, say).
    File::options()
        .append(true)
        .open(&right)
        .unwrap()
        .write_all(b"more")
        .unwrap();
    assert_eq!(rule(&parts.locate()), Some(FoundBy::DebugLink));

    let script = "
        set -e
        mkdir plain
        gcc -O2 -g -Wl,--build-id=none work.c -o plain/whole
        objcopy --only-keep-debug plain/whole plain/program.debug
        strip --strip-all -o plain/program plain/whole
        cd plain && objcopy --add-gnu-debuglink=program.debug program
        mkdir .debug && cp program.debug .debug
        echo more >> program.debug
        cp program self && objcopy --remove-section=.gnu_debuglink self
        touch link && objcopy --add-gnu-debuglink=link self && mv self link
    ";
    compile(parts.work.path(), "bash", &["-c", script]);
    let locate = |name: &str| {
        let module = recorded(&parts.at("plain").join(name));
        assert_eq!(module.build_id, None);
        Locator::new(parts.places()).locate(&module)
    };
    let found = locate("program");
    let dwarf = found.dwarf().unwrap();
    assert_eq!(dwarf.path, parts.at("plain/.debug/program.debug"));
    assert_eq!(rule(&locate("link")), None);
}

/// Check that what a client remembers as not to be had is not taken for a file.
#[test]
fn empty_files_of_clients() {
    let parts = Parts::new();
    let cached = parts.at(&format!("client/{}/debuginfo", parts.id()));
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    File::create(&cached).unwrap();
    assert_eq!(rule(&parts.locate()), None);
}

/// elfutils' server for the ELF files below a folder.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(folder: &Path, id: &str) -> Self {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (port, url) = (port.to_string(), format!("http://127.0.0.1:{port}"));
        let args = ["-d", ":memory:", "-p", &port, "-F"];
        let process = Command::new("debuginfod")
            .args(args)
            .arg(folder)
            .env_remove("DEBUGINFOD_URLS")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("debuginfod; this test needs it: apt-get install debuginfod");
        let server = Self { process, url };
        let deadline = Instant::now() + Duration::from_secs(60);
        let asked = format!("{}/buildid/{id}/debuginfo", server.url);
        while !has(&asked) {
            assert!(Instant::now() < deadline, "debuginfod does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        server
    }
}

fn has(url: &str) -> bool {
    let args = ["--silent", "--fail", "--output", "/dev/null", url];
    Command::new("curl").args(args).status().unwrap().success()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Run `rawstack` in an environment that has nothing but what is given.
fn run(parts: &Parts, variables: &[(&str, &str)], args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rawstack"))
        .args(args)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap())
        .env("HOME", parts.at("home"))
        .envs(variables.iter().copied())
        .current_dir(parts.work.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// An archive with one sample in the module, whose recorded path leads nowhere.
fn archive(parts: &Parts) -> u64 {
    let mut module = parts.module.clone();
    module.path = "/usr/bin/gone".to_owned();
    let file = ElfFile::open(&parts.at("away/program")).unwrap();
    let mut main = 0;
    file.for_each_symbol(&mut |symbol| {
        if symbol.name == b"main" {
            main = symbol.svma;
        }
    });
    let code = module.segments[0];
    let mut archive = Archive::new();
    archive.process(1, "program", "/");
    let index = archive.module(module);
    let user = archive.user_stack(index, &[main - code.vaddr + code.offset.0]);
    archive.user_sample(user);
    archive.write(parts.work.path(), "a.rawstack");
    main
}

/// Check the client against a real server: nothing is asked without `--debuginfod`; what comes is kept as elfutils' client
/// keeps it and found without a server; `symbols --fetch` fetches ahead; limits of size are kept.
#[test]
fn debuginfod_server() {
    let parts = Parts::new();
    archive(&parts);
    fs::create_dir_all(parts.at("served")).unwrap();
    parts.put("served/program.debug");
    let server = Server::start(&parts.at("served"), &parts.id());
    let url = [("DEBUGINFOD_URLS", server.url.as_str())];
    let report = ["report", "--by", "line", "--csv", "a.rawstack"];
    let (without, _) = text(&run(&parts, &url, &report));
    assert!(without.contains("gone+0x"), "{without}");
    assert!(!parts.at("home").exists());

    let small = [
        url[0],
        ("DEBUGINFOD_MAXSIZE", "100"),
        ("DEBUGINFOD_RETRY_LIMIT", "0"),
    ];
    let with = [&report[..], &["--debuginfod"]].concat();
    let (refused, _) = text(&run(&parts, &small, &with));
    assert!(refused.contains("gone+0x"), "{refused}");

    let (json, errors) = text(&run(
        &parts,
        &url,
        &["symbols", "--fetch", "--json", "a.rawstack"],
    ));
    let row: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(row["files"][0]["found_by"], "debuginfod", "{json} {errors}");
    let kept = parts.at(&format!(
        "home/.cache/debuginfod_client/{}/debuginfo",
        parts.id()
    ));
    assert_eq!(row["files"][0]["path"], kept.to_str().unwrap());
    assert_eq!(
        fs::read(&kept).unwrap(),
        fs::read(parts.at("away/program.debug")).unwrap()
    );
    assert_eq!(
        kept.parent().unwrap().metadata().unwrap().mode() & 0o777,
        0o700
    );
    let left = fs::read_dir(kept.parent().unwrap()).unwrap();
    let half = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with('.')
    });
    assert_eq!(half.count(), 0, "half a file is left behind");

    drop(server);
    let (named, errors) = text(&run(&parts, &[], &report));
    assert!(named.contains("main,/usr/bin/gone,"), "{named} {errors}");
    assert!(named.contains("work.c,"), "{named}");
}

/// What a server of the test does with a request: gets the request's lines, gives the answer's bytes.
pub(crate) type Behaviour = dyn Fn(&[String]) -> Vec<u8> + Send + Sync;

/// A server that misbehaves; gives its URL and the requests that came.
pub(crate) fn misbehave(behave: Box<Behaviour>) -> (String, Arc<Mutex<Vec<Vec<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let reader = BufReader::new(stream.try_clone().unwrap());
            let lines = reader.lines().map_while(Result::ok);
            let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let answer = behave(&request);
            seen.lock().unwrap().push(request);
            let _ = stream.write_all(&answer);
        }
    });
    (url, requests)
}

pub(crate) fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Check that a file of another build is not taken, that the next server is asked then, and that headers are sent along.
#[test]
fn server_with_wrong_files() {
    let parts = Parts::new();
    archive(&parts);
    let wrong = fs::read(env!("CARGO_BIN_EXE_rawstack")).unwrap();
    let right = fs::read(parts.at("away/program.debug")).unwrap();
    let (liar, _) = misbehave(Box::new(move |_| {
        answer("200 OK", &wrong[..wrong.len().min(1 << 20)])
    }));
    let (honest, requests) = misbehave(Box::new(move |_| answer("200 OK", &right)));
    fs::write(parts.at("headers"), "X-Token: secret\n").unwrap();
    let urls = format!("{liar} {honest}/base/");
    let headers = parts.at("headers");
    let variables = [
        ("DEBUGINFOD_URLS", urls.as_str()),
        ("DEBUGINFOD_HEADERS_FILE", headers.to_str().unwrap()),
        ("DEBUGINFOD_MAXSIZE", "100000000"),
    ];
    let (json, errors) = text(&run(
        &parts,
        &variables,
        &["symbols", "--debuginfod", "--json", "a.rawstack"],
    ));
    let row: Value = serde_json::from_str(&json).unwrap();
    let tried = row["tried"].as_array().unwrap();
    let of = |url: &str| {
        let found = tried
            .iter()
            .find(|row| row["place"].as_str().unwrap().starts_with(url));
        found.unwrap()["outcome"].clone()
    };
    assert_ne!(of(&liar), "found", "{errors}");
    assert_eq!(of(&honest), "found");
    assert_eq!(row["files"][0]["dwarf"], true);
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0][0],
        format!("GET /base/buildid/{}/debuginfo HTTP/1.1", parts.id())
    );
    assert!(requests[0].iter().any(|line| line == "X-Token: secret"));
    assert!(
        requests[0]
            .iter()
            .any(|line| line == "X-DEBUGINFOD-MAXSIZE: 100000000")
    );
    assert!(
        requests[0]
            .iter()
            .any(|line| line.starts_with("User-Agent: rawstack/"))
    );
}

/// Check that what no server has is remembered, so that it is not asked again, and asked again when that is long ago.
#[test]
fn negative_answers() {
    let parts = Parts::new();
    archive(&parts);
    let (url, requests) = misbehave(Box::new(|_| answer("404 Not Found", b"File not found\n")));
    let variables = [("DEBUGINFOD_URLS", url.as_str())];
    let ask = || {
        text(&run(
            &parts,
            &variables,
            &["symbols", "--debuginfod", "a.rawstack"],
        ))
        .0
    };
    let first = ask();
    assert!(
        first.contains("/debuginfo (debuginfod): nothing there"),
        "{first}"
    );
    assert_eq!(
        requests.lock().unwrap().len(),
        2,
        "debuginfo and executable"
    );
    let again = ask();
    assert!(again.contains("(asked before)"), "{again}");
    assert_eq!(requests.lock().unwrap().len(), 2);
    let cache = parts.at("home/.cache/debuginfod_client");
    let remembered = cache.join(parts.id()).join("debuginfo").metadata().unwrap();
    assert_eq!((remembered.len(), remembered.mode() & 0o777), (0, 0));
    fs::write(cache.join("cache_miss_s"), "0\n").unwrap();
    ask();
    assert_eq!(requests.lock().unwrap().len(), 4);
}

/// Check that a server which fails is not asked any more after some failures, however many modules there are; and that one
/// which never answers costs no more than the time for all transfers.
#[test]
fn failing_servers() {
    let parts = Parts::new();
    let mut archive = Archive::new();
    archive.process(1, "program", "/");
    for number in 0..8u8 {
        let mut module = parts.module.clone();
        module.path = format!("/usr/lib/lib{number}.so");
        module.build_id = BuildId::new(&[number; 20]);
        let index = archive.module(module);
        let user = archive.user_stack(index, &[0x1100]);
        archive.user_sample(user);
    }
    archive.write(parts.work.path(), "a.rawstack");
    let args = ["symbols", "--debuginfod", "a.rawstack"];
    let (url, requests) = misbehave(Box::new(|_| answer("503 Service Unavailable", b"")));
    let (out, _) = text(&run(&parts, &[("DEBUGINFOD_URLS", &url)], &args));
    assert_eq!(out.matches("(debuginfod): failed").count(), 16, "{out}");
    // Several threads may each have begun a request before the third failure.
    let asked = requests.lock().unwrap().len();
    assert!((3..16).contains(&asked), "{asked} requests");

    let (url, requests) = misbehave(Box::new(|_| {
        thread::sleep(Duration::from_secs(600));
        Vec::new()
    }));
    let variables = [
        ("DEBUGINFOD_URLS", url.as_str()),
        ("DEBUGINFOD_MAXTIME", "1"),
    ];
    let (out, _) = text(&run(&parts, &variables, &args));
    assert_eq!(out.matches("(debuginfod): failed").count(), 16, "{out}");
    drop(requests);
}

/// Check that it is told when no server is named and when curl is missing.
#[test]
fn nothing_to_ask() {
    let parts = Parts::new();
    archive(&parts);
    let args = ["report", "--debuginfod", "a.rawstack"];
    let none = run(&parts, &[("DEBUGINFOD_URLS", "")], &args);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        text(&none).1.contains("DEBUGINFOD_URLS names none"),
        "{:?}",
        text(&none)
    );
    let no_curl = run(
        &parts,
        &[
            ("DEBUGINFOD_URLS", "http://127.0.0.1:1"),
            ("PATH", "/nonexistent"),
        ],
        &args,
    );
    assert_eq!(no_curl.status.code(), Some(2));
    assert!(text(&no_curl).1.contains("install it"));
    tool("curl", ["--version"]);
}
