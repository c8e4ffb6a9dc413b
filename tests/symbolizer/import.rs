//! Recordings of perf as archives; perf itself is the oracle.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection;
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use rawstack_format::record::Module;
use rawstack_format::{Writer, WriterOptions};
use rawstack_symbolizer::import::PerfRecording;

use super::run::{check_golden, rawstack, succeed};

/// A recording of 22 samples, by `perf record -F 299 -g`.
fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/perf/small.data")
}

fn import(folder: &Path, data: &Path, options: &[&str]) -> String {
    let args = [
        "import",
        data.to_str().unwrap(),
        "-o",
        "x.rawstack",
        "--force",
    ];
    let ran = rawstack(folder, &[&args, options].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let verified = rawstack(folder, &["verify", "x.rawstack"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    ran.err
}

/// Check what a recording of another machine says, which does not depend on what is here, and that the same recording
/// gives the same bytes.
#[test]
fn recording_of_elsewhere() {
    let work = tempfile::tempdir().unwrap();
    // Made now: files of this host count that did not change since, and a new C library may be younger than the checkout.
    let data = work.path().join("small.data");
    fs::copy(small(), &data).unwrap();
    let told = import(work.path(), &data, &[]);
    assert!(told.contains("22 samples"), "{told}");
    let report = succeed(
        work.path(),
        &["report", "-q", "--by", "module", "--csv", "x.rawstack"],
    );
    check_golden("import/small.csv", &report);
    let dump = succeed(work.path(), &["dump", "x.rawstack"]);
    check_golden("import/small.jsonl", &dump);
    let first = fs::read(work.path().join("x.rawstack")).unwrap();
    import(work.path(), &data, &[]);
    assert_eq!(fs::read(work.path().join("x.rawstack")).unwrap(), first);
}

/// Check that what an archive cannot hold is refused in one line that says what it is and what to do.
#[test]
fn refusals() {
    let work = tempfile::tempdir().unwrap();
    let whole = fs::read(small()).unwrap();
    let changed = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] |= byte;
        bytes
    };
    fs::create_dir(work.path().join("folder")).unwrap();
    let files: [(&str, Vec<u8>, &str); 6] = [
        (
            "text",
            b"no recording of perf".to_vec(),
            "it is no perf.data",
        ),
        ("empty", Vec::new(), "it is no perf.data"),
        (
            "old",
            b"PERFFILE\x68\0\0\0\0\0\0\0".to_vec(),
            "a perf of before 2010",
        ),
        // Bits of the features in the header.
        ("simpleperf", changed(72 + 16, 1), "it is of simpleperf"),
        ("stat", changed(72 + 2, 1 << 3), "it holds counts"),
        ("cut", whole[..60].to_vec(), "it is damaged"),
    ];
    for (name, bytes, expected) in files {
        fs::write(work.path().join(name), bytes).unwrap();
        let ran = rawstack(work.path(), &["import", name, "-o", "new"]);
        assert_eq!(
            (ran.code, ran.err.lines().count()),
            (2, 1),
            "{name}: {}",
            ran.err
        );
        assert!(ran.err.contains(expected), "{name}: {}", ran.err);
        assert!(!work.path().join("new").exists(), "{name}");
    }
    let ran = rawstack(work.path(), &["import", "folder", "-o", "new"]);
    assert!(ran.err.contains("perf record --threads"), "{}", ran.err);
    let data = small();
    let data = data.to_str().unwrap();
    let kallsyms = |text: &str| {
        fs::write(work.path().join("kallsyms"), text).unwrap();
        let args = ["import", data, "--kallsyms", "kallsyms", "-o", "new"];
        let ran = rawstack(work.path(), &args);
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{}", ran.err);
        ran.err
    };
    assert!(kallsyms("0000 T _stext\n").contains("are 0"));
    assert!(
        kallsyms("ffffffff91000000 T _text\nffffffff91000000 T _stext\n")
            .contains("of another boot")
    );
    fs::write(work.path().join("there"), "").unwrap();
    let ran = rawstack(work.path(), &["import", data, "-o", "there"]);
    assert!(
        ran.err.contains("it exists; name another with -o"),
        "{}",
        ran.err
    );
}

/// Check that of a recording that was cut anywhere what is whole is taken, and that the archive says that it is cut.
#[test]
fn cut_recordings() {
    let work = tempfile::tempdir().unwrap();
    let whole = fs::read(small()).unwrap();
    let data = work.path().join("cut.data");
    let mut last = 0;
    for length in (400..whole.len()).step_by(397) {
        fs::write(&data, &whole[..length]).unwrap();
        let ran = rawstack(work.path(), &["import", "cut.data", "--force", "-o", "x"]);
        assert_eq!(ran.code, 0, "{length}: {}", ran.err);
        let samples = succeed(work.path(), &["dump", "x"]).lines().count();
        assert!(samples >= last, "{length}");
        last = samples;
        let verified = rawstack(work.path(), &["verify", "x"]);
        let is_cut = ran.err.contains("ends before its end");
        assert_eq!(
            verified.code,
            i32::from(is_cut),
            "{length}: {}",
            verified.out
        );
    }
    assert_eq!(last, 22);
}

/// Import in this process.
fn import_bytes(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    let Ok(recording) = PerfRecording::open(file.path(), None) else {
        return;
    };
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    let none = |_: &Module, _: &_| None;
    if recording.write(file.path(), &mut writer, &none).is_ok() {
        let archive = writer.finish().unwrap();
        let mut reader = rawstack_format::Reader::new(archive.as_slice()).unwrap();
        while reader.next().unwrap().is_some() {}
        assert!(reader.damage().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    /// Check that a recording with any bytes changed becomes an archive that is whole, or is refused, and never a panic.
    #[test]
    fn changed_recordings(
        changes in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        header in any::<bool>(),
    ) {
        let mut bytes = fs::read(small()).unwrap();
        let reach = if header { 600 } else { bytes.len() };
        for (place, byte) in changes {
            bytes[place.index(reach)] = byte;
        }
        import_bytes(&bytes);
    }
}

/// With perf itself, which has to be allowed to sample the kernel.
mod root {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::{Command, Stdio};

    use serde_json::Value;

    use super::*;
    use crate::fixtures::tool;

    /// A program with frame pointers, which starts itself once more.
    fn program(folder: &Path) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/callers.c");
        let program = folder.join("callers");
        let options = [
            "-O1",
            "-g",
            "-fno-omit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-o",
        ];
        let mut args: Vec<&str> = options.to_vec();
        args.extend([program.to_str().unwrap(), source.to_str().unwrap()]);
        tool("gcc", args);
        program
    }

    fn record(folder: &Path, options: &[&str]) -> PathBuf {
        let program = program(folder);
        let data = folder.join("perf.data");
        let mut args = vec!["record", "-q", "-o", data.to_str().unwrap()];
        args.extend_from_slice(options);
        args.extend(["--", program.to_str().unwrap(), "2000000", "again"]);
        tool("perf", args);
        data
    }

    /// Samples as `perf script` prints them: the names of each stack, leaf first.
    fn perf_stacks(data: &Path) -> Vec<Vec<String>> {
        let args = ["script", "-F", "pid,ip,sym", "-i", data.to_str().unwrap()];
        let text = String::from_utf8(tool("perf", args).stdout).unwrap();
        let mut stacks: Vec<Vec<String>> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix('\t') {
                Some(frame) => {
                    let name = frame.trim().split_once(' ').map_or("", |(_, name)| name);
                    stacks.last_mut().unwrap().push(name.trim().to_owned());
                }
                None => stacks.push(Vec::new()),
            }
        }
        stacks
    }

    /// Samples of each name: self, total.
    fn sums(stacks: &[Vec<String>]) -> BTreeMap<&str, (u64, u64)> {
        let mut sums = BTreeMap::<&str, (u64, u64)>::new();
        for stack in stacks {
            if let Some(leaf) = stack.first() {
                sums.entry(leaf).or_default().0 += 1;
            }
            let names: BTreeSet<&str> = stack.iter().map(String::as_str).collect();
            for name in names {
                sums.entry(name).or_default().1 += 1;
            }
        }
        sums
    }

    /// Check that self and total of the program's functions, and self of the kernel's, are what perf makes of the same
    /// recording.
    #[test]
    fn same_as_perf() {
        let work = tempfile::tempdir().unwrap();
        let data = record(work.path(), &["-F", "2000", "-g", "-e", "cpu-clock"]);
        import(work.path(), &data, &["--kallsyms", "/proc/kallsyms"]);
        let stacks = perf_stacks(&data);
        let expected = sums(&stacks);
        let options = [
            "report",
            "-q",
            "--json",
            "--no-cache",
            "--no-inlines",
            "x.rawstack",
        ];
        let report: Value = serde_json::from_str(&succeed(work.path(), &options)).unwrap();
        assert_eq!(report["samples"], stacks.len());
        let period = report["total"].as_u64().unwrap() / report["samples"].as_u64().unwrap();
        assert!(period >= 499_000, "{period} ns");
        let dump = succeed(work.path(), &["dump", "x.rawstack"]);
        assert_eq!(dump.lines().count(), stacks.len());
        let names = ["main", "alpha", "beta", "burn"];
        let ours = export(work.path());
        let found = sums(&ours);
        for name in names {
            assert_eq!(found.get(name), expected.get(name), "{name}");
            assert!(found[name].1 > 50, "{name}: {:?}", found[name]);
        }
        let in_kernel = |sums: &BTreeMap<&str, (u64, u64)>| -> u64 {
            let rows = sums.iter().filter(|(name, _)| !names.contains(name));
            rows.map(|(_, (own, _))| own).sum()
        };
        assert_eq!(in_kernel(&found), in_kernel(&expected));
        let shared: u64 = found
            .iter()
            .map(|(name, (own, _))| expected.get(name).map_or(0, |row| row.0).min(*own))
            .sum();
        assert!(
            shared * 100 >= stacks.len() as u64 * 97,
            "{shared} of {}",
            stacks.len()
        );
    }

    /// The stacks of `x.rawstack` by name, leaf first.
    fn export(folder: &Path) -> Vec<Vec<String>> {
        let args = [
            "export",
            "-q",
            "--no-cache",
            "--no-inlines",
            "--format",
            "json",
            "x.rawstack",
        ];
        let text = succeed(folder, &args);
        let stack = |line: &str| -> Vec<String> {
            let row: Value = serde_json::from_str(line).unwrap();
            let frames = row["frames"].as_array().unwrap();
            let name = |frame: &Value| frame["name"].as_str().unwrap().to_owned();
            frames.iter().map(name).collect()
        };
        text.lines().map(stack).collect()
    }

    /// Check that each way to record gives the samples that perf counts, by event, and says what it leaves out.
    #[test]
    fn ways_to_record() {
        let work = tempfile::tempdir().unwrap();
        let ways: [(&[&str], &str, &[&str]); 8] = [
            (&["-F", "500"], "", &["cpu-clock"]),
            (&["-g", "-F", "500", "-z"], "", &["cpu-clock"]),
            (&["-g", "-F", "500", "-B"], "", &["cpu-clock"]),
            (&["-g", "-F", "500", "--buildid-mmap"], "", &["cpu-clock"]),
            (
                &["-F", "500", "-a", "-g", "-e", "cpu-clock"],
                "",
                &["cpu-clock"],
            ),
            (
                &["-e", "cpu-clock", "-e", "task-clock", "-g", "-F", "500"],
                "",
                &["cpu-clock", "task-clock"],
            ),
            (
                &["-e", "{cpu-clock,task-clock}:S", "-g", "-F", "500"],
                "counts of other events beside",
                &["cpu-clock"],
            ),
            (
                &["--call-graph", "dwarf", "-F", "200"],
                "copies of user stacks",
                &["cpu-clock"],
            ),
        ];
        for (options, told, events) in ways {
            let data = record(work.path(), options);
            let said = import(work.path(), &data, &[]);
            assert!(said.contains(told), "{options:?}: {said}");
            let args = ["script", "-F", "event", "-i", data.to_str().unwrap()];
            let text = String::from_utf8(tool("perf", args).stdout).unwrap();
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| !line.starts_with('\t') && !line.trim().is_empty())
                .collect();
            let dump = succeed(work.path(), &["dump", "x.rawstack"]);
            assert!(!lines.is_empty());
            for event in events {
                let ours = dump
                    .lines()
                    .filter(|line| line.contains(&format!("\"event\":\"{event}")))
                    .count();
                let perf = lines
                    .iter()
                    .filter(|line| line.trim().starts_with(event))
                    .count();
                assert_eq!(ours, perf, "{options:?} {event}");
            }
            // Of the counts beside samples perf makes samples, too.
            if !told.contains("counts") {
                assert_eq!(dump.lines().count(), lines.len(), "{options:?}");
            }
            let report = succeed(work.path(), &["report", "-q", "--no-cache", "x.rawstack"]);
            assert!(report.contains("  burn"), "{options:?}: {report}");
        }
    }

    /// Check that a stream of perf gives the same samples from standard input as from a file, and from a file also names.
    #[test]
    fn streams() {
        let work = tempfile::tempdir().unwrap();
        let program = program(work.path());
        let data = work.path().join("stream.data");
        let recorded = Command::new("perf")
            .args(["record", "-q", "-F", "500", "-g", "-o", "-", "--"])
            .arg(&program)
            .args(["20000000", "again"])
            .stdout(fs::File::create(&data).unwrap())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(recorded.success());
        import(work.path(), &data, &[]);
        let report = succeed(work.path(), &["report", "-q", "--no-cache", "x.rawstack"]);
        assert!(report.contains("  burn"), "{report}");
        let piped = Command::new(env!("CARGO_BIN_EXE_rawstack"))
            .args(["import", "-", "-o", "y.rawstack"])
            .current_dir(work.path())
            .stdin(fs::File::open(&data).unwrap())
            .output()
            .unwrap();
        assert!(piped.status.success(), "{piped:?}");
        let count = |file: &str| succeed(work.path(), &["dump", file]).lines().count();
        assert!(count("x.rawstack") > 50);
        assert_eq!(count("x.rawstack"), count("y.rawstack"));
    }
}
