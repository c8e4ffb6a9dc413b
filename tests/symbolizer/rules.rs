//! Lookup rules that other tools get wrong, each with the right answer worked out by hand.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rawstack_format::id::FrameIndex;
use rawstack_format::record::{FrameKind, Module, ModuleKind, Record, Sample, Vdso};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::identity::content_hash;
use serde_json::Value;

use super::archive::{Archive, golden_module};
use super::fixtures::{self, tool};
use super::offline::recorded;
use super::run::{rawstack, succeed};

fn symbolize(file: &Path, number: &str) -> Value {
    let args = [
        "symbolize",
        "--json",
        "--file",
        file.to_str().unwrap(),
        number,
    ];
    serde_json::from_str(&succeed(Path::new("/"), &args)).unwrap()
}

fn names(answer: &Value) -> Vec<&str> {
    answer["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["name"].as_str().unwrap())
        .collect()
}

/// Link `source` into a fixed place without anything else.
fn assemble(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let folder = fixtures::folder();
    let (input, output) = (folder.join(format!("{name}.s")), folder.join(name));
    fs::write(&input, source).unwrap();
    let fixed = [
        "-nostdlib",
        "-static",
        "-Wl,-Ttext=0x401000",
        "-Wl,--build-id",
        "-o",
    ];
    let options = fixed
        .iter()
        .chain(options)
        .map(OsStr::new)
        .collect::<Vec<_>>();
    let (before, after) = options.split_at(fixed.len());
    let files = [output.as_os_str(), input.as_os_str()];
    tool(
        "gcc",
        before
            .iter()
            .copied()
            .chain(files)
            .chain(after.iter().copied()),
    );
    output
}

/// Check that behind a symbol that lies within another one the outer one is found again (gdb: outer).
#[test]
fn nested_symbols() {
    let source = "
        .text
        .globl _start, outer, inner
        .type outer, @function
        .type inner, @function
        _start:
        outer: .skip 16, 0x90
        inner: .skip 8, 0x90
        .size inner, 8
        .skip 41, 0x90
        .size outer, 65
    ";
    let program = assemble("nested", source, &[]);
    assert_eq!(names(&symbolize(&program, "401008")), ["outer"]);
    assert_eq!(names(&symbolize(&program, "401012")), ["inner"]);
    assert_eq!(names(&symbolize(&program, "401020")), ["outer"]);
}

/// Check that a unit of assembly, which has lines and no functions, gives its symbol with file and line.
#[test]
fn assembly_with_lines() {
    let source = "
        .text
        .globl _start
        .type _start, @function
        _start:
        nop
        nop
        .size _start, 2
    ";
    let program = assemble("assembly", source, &["-g"]);
    let answer = symbolize(&program, "401001");
    assert_eq!(names(&answer), ["_start"]);
    assert_eq!(answer["frames"][0]["line"], 7);
    assert!(
        answer["frames"][0]["file"]
            .as_str()
            .unwrap()
            .ends_with("/assembly.s")
    );
}

/// Check that functions which the linker threw away, and which then seem to start at address 0, name nothing: the
/// live code of a program linked at 0 stays what it is (gdb: main and helper).
#[test]
fn dead_functions_at_zero() {
    let folder = fixtures::folder();
    let (dead, live) = (folder.join("dead.c"), folder.join("live.c"));
    let filler = "sum += sum * 7 ^ n; ".repeat(400);
    fs::write(
        &dead,
        format!("unsigned ghost(unsigned n) {{ unsigned sum = n; {filler} return sum; }}"),
    )
    .unwrap();
    fs::write(&live, "int helper(int n) { return n * 3; }\nint main(int argc, char **argv) { return helper(argc); }\n").unwrap();
    let program = folder.join("dead-at-zero");
    let options = [
        "-O1",
        "-g",
        "-ffunction-sections",
        "-fno-inline",
        "-Wl,--gc-sections",
        "-o",
    ]
    .map(OsStr::new);
    tool(
        "gcc",
        options
            .into_iter()
            .chain([program.as_os_str(), dead.as_os_str(), live.as_os_str()]),
    );
    let file = ElfFile::open(&program).unwrap();
    let text = file.section(".text").unwrap();
    for address in text.svma..text.svma + text.size {
        let answer = symbolize_many(&program, address);
        assert!(!names(&answer).contains(&"ghost"), "{address:#x}: {answer}");
    }
}

fn symbolize_many(program: &Path, address: u64) -> Value {
    use std::collections::HashMap;
    use std::sync::{Mutex, OnceLock};
    static ALL: OnceLock<Mutex<HashMap<u64, Value>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock().unwrap();
    if all.is_empty() {
        let file = ElfFile::open(program).unwrap();
        let text = file.section(".text").unwrap();
        let input: String = (text.svma..text.svma + text.size)
            .map(|address| format!("{address:x}\n"))
            .collect();
        let ran = super::run::with_input(
            Path::new("/"),
            &["symbolize", "--json", "--file", program.to_str().unwrap()],
            &input,
        );
        for (address, line) in (text.svma..).zip(ran.out.lines()) {
            all.insert(address, serde_json::from_str(line).unwrap());
        }
    }
    all[&address].clone()
}

/// Check that a return address behind a call that never returns belongs to the caller, and that the same number as
/// an instruction's own address belongs to the function that starts there.
#[test]
fn call_that_never_returns() {
    let program = fixtures::golden();
    let work = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.process(1, "golden", "/");
    let module = archive.module(golden_module());
    let user = archive.user_stack(module, &[0x10aa, 0x10aa]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let folder = program.parent().unwrap();
    let report = succeed(
        work.path(),
        &[
            "report",
            "--csv",
            "a.rawstack",
            "--symbol-dir",
            folder.to_str().unwrap(),
        ],
    );
    let rows: Vec<&str> = report
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap())
        .collect();
    assert_eq!(rows, ["bare", "_start"]);
}

/// Check that the frame which a signal interrupted and the trampoline itself are taken as they are, while a plain
/// caller at the same address is looked up one byte before it.
#[test]
fn interrupted_by_a_signal() {
    let source = "
        .text
        .globl _start, before, __restore_rt, handler
        .type before, @function
        .type _start, @function
        .type __restore_rt, @function
        .type handler, @function
        before: .skip 16, 0x90
        .size before, 16
        _start: .skip 16, 0x90
        .size _start, 16
        __restore_rt: mov $15, %rax
        syscall
        .size __restore_rt, 9
        .skip 7, 0x90
        handler: .skip 16, 0x90
        .size handler, 16
    ";
    let program = assemble("signal", source, &[]);
    for cut in [false, true] {
        let work = tempfile::tempdir().unwrap();
        let target = work.path().join("signal.file");
        let how: &[&str] = if cut { &["--only-keep-debug"] } else { &[] };
        let files = [program.as_os_str(), target.as_os_str()];
        tool("objcopy", how.iter().map(OsStr::new).chain(files));
        let mut archive = Archive::new();
        archive.process(1, "signal", "/");
        let mut module = recorded(&program);
        module.path = "/opt/signal".to_owned();
        let module = archive.module(module);
        let frames: Vec<FrameIndex> = [
            (FrameKind::UserLeaf, 0x1032),
            (FrameKind::UserCaller, 0x1020),
            (FrameKind::UserCaller, 0x1010),
        ]
        .map(|(kind, offset)| archive.frame(kind, module, offset))
        .to_vec();
        let signalled = archive.stack(&frames);
        archive.user_sample(signalled);
        archive.write(work.path(), "a.rawstack");
        let args = [
            "dump",
            "--format",
            "perf-script",
            "a.rawstack",
            "--symbol-dir",
            ".",
        ];
        let script = succeed(work.path(), &args);
        let names: Vec<&str> = script
            .lines()
            .filter_map(|line| line.strip_prefix('\t')?.split_whitespace().nth(1))
            .collect();
        assert_eq!(
            names,
            ["handler", "__restore_rt", "_start"],
            "debug file only: {cut}"
        );
    }
}

/// Check that names come from the union of a stripped program and its debug file, and that a file of another build
/// in the place of the recorded one names nothing and is told.
#[test]
fn other_build_names_nothing() {
    let work = tempfile::tempdir().unwrap();
    let program = fixtures::golden();
    let other = work.path().join("golden");
    let source = fixtures::sources().join("golden.s");
    let fixed = [
        "-nostdlib",
        "-static",
        "-Wl,-Ttext=0x401000",
        "-Wl,--build-id=0x99",
        "-o",
    ]
    .map(OsStr::new);
    tool(
        "gcc",
        fixed
            .into_iter()
            .chain([other.as_os_str(), source.as_os_str()]),
    );
    let mut archive = Archive::new();
    archive.process(1, "golden", "/");
    let mut module = golden_module();
    module.path = other.to_str().unwrap().to_owned();
    let module = archive.module(module);
    let user = archive.user_stack(module, &[0x1016]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let ran = rawstack(work.path(), &["report", "a.rawstack", "--csv"]);
    assert!(ran.out.contains("golden+0x1016,"), "{}", ran.out);
    assert!(ran.err.contains("another build"), "{}", ran.err);
    let folder = program.parent().unwrap().to_str().unwrap();
    let named = succeed(
        work.path(),
        &["report", "a.rawstack", "--csv", "--symbol-dir", folder],
    );
    assert!(named.contains("innermost,"), "{named}");
}

/// Check that a module without build ID is found by the hash of its content.
#[test]
fn by_content_hash() {
    let work = tempfile::tempdir().unwrap();
    let program = fixtures::golden();
    let bare = work.path().join("renamed");
    let remove = [
        "--remove-section=.note.gnu.build-id".as_ref(),
        program.as_os_str(),
        bare.as_os_str(),
    ];
    tool("objcopy", remove);
    let hash = content_hash(&fs::read(&bare).unwrap());
    let mut archive = Archive::new();
    archive.process(1, "golden", "/");
    let mut module = golden_module();
    (module.build_id, module.content_hash) = (None, Some(hash));
    let module = archive.module(module);
    let user = archive.user_stack(module, &[0x1016]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let named = succeed(
        work.path(),
        &["report", "a.rawstack", "--csv", "--symbol-dir", "."],
    );
    assert!(named.contains("innermost,"), "{named}");
}

/// Check that a vmlinux which is found by build ID gives kernel frames functions and lines, its own `_stext` being
/// where the recorded offsets count from, and that kallsyms names what it does not cover.
#[test]
fn vmlinux_by_build_id() {
    let source = "
        .text
        .globl _start, _stext
        .type _start, @function
        _stext:
        _start:
        nop
        nop
        .size _start, 2
    ";
    let program = assemble("vmlinux", source, &["-g"]);
    let work = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    super::archive::kernel_records()
        .into_iter()
        .for_each(|record| archive.record(record));
    archive.process(1, "idle", "/");
    let kernel = archive.module(Module {
        kind: ModuleKind::Kernel,
        build_id: ElfFile::open(&program).unwrap().build_id,
        path: "[kernel]".to_owned(),
        ..Module::default()
    });
    let frames = [
        (FrameKind::KernelLeaf, 1),
        (FrameKind::KernelCaller, 0x1004),
    ];
    let frames = frames.map(|(kind, offset)| archive.frame(kind, kernel, offset));
    let stack = archive.stack(&frames);
    archive.sample(Sample {
        kernel: stack,
        ..Sample::default()
    });
    archive.write(work.path(), "a.rawstack");
    let folder = work.path().join("debug");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&program, folder.join("vmlinux")).unwrap();
    let args = ["report", "a.rawstack", "--csv", "--by", "line"];
    let without = succeed(work.path(), &args);
    assert!(without.contains("_stext,[kernel],,,"), "{without}");
    let args = [&args[..], &["--symbol-dir", "debug"]].concat();
    let with = succeed(work.path(), &args);
    let line = with
        .lines()
        .find(|line| line.starts_with("_start,[kernel],"));
    assert!(line.unwrap().contains("vmlinux.s,8,"), "{with}");
    assert!(with.contains("do_idle,[kernel],,,"), "{with}");
}

/// Check that the vDSO is resolved from the image in the archive.
#[test]
fn vdso_from_the_archive() {
    let work = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.record(Record::Vdso(Vdso {
        build_id: None,
        class: 64,
        image: fs::read(fixtures::golden()).unwrap(),
    }));
    archive.process(1, "clock", "/");
    let vdso = archive.module(Module {
        kind: ModuleKind::Vdso,
        class: 64,
        path: "[vdso]".to_owned(),
        ..Module::default()
    });
    let user = archive.user_stack(vdso, &[0x1016]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let report = succeed(work.path(), &["report", "a.rawstack", "--csv"]);
    assert!(report.contains("innermost,[vdso],"), "{report}");
}
