//! Resolving where the recorded machine is unknown.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rawstack_format::id::BuildId;
use rawstack_format::record::Module;
use rawstack_symbolizer::debug_file::elf::ElfFile;

use super::archive::Archive;
use super::fixtures::{self, debug_tree, sources};
use super::pieces::compile;
use super::run::succeed;

/// A module as a recorder would describe the program at `path`.
pub(crate) fn recorded(path: &Path) -> Module {
    let file = ElfFile::open(path).unwrap();
    let code = file
        .segments
        .iter()
        .filter(|segment| segment.flags & 1 != 0)
        .copied();
    Module {
        class: file.class,
        machine: file.machine,
        page_size: 4096,
        build_id: file.build_id.clone(),
        path: path.to_str().unwrap().to_owned(),
        segments: code.collect(),
        ..Module::default()
    }
}

/// File offsets of all bytes of `.text`, every `step`th.
pub(crate) fn text_offsets(path: &Path, step: usize) -> Vec<u64> {
    let file = ElfFile::open(path).unwrap();
    let text = file.section(".text").unwrap();
    (text.offset..text.offset + text.size)
        .step_by(step)
        .collect()
}

/// An archive with a sample at each of the offsets.
pub(crate) fn archive_of(path: &Path, step: usize) -> Archive {
    let mut archive = Archive::new();
    archive.process(1, "program", "/");
    let module = archive.module(recorded(path));
    for offset in text_offsets(path, step) {
        let user = archive.user_stack(module, &[offset]);
        archive.user_sample(user);
    }
    archive
}

/// Check that an archive and separate debug files give the same report in a root that holds nothing else as the
/// programs themselves give where they are: segments come from the archive, names and lines from the debug file.
#[test]
fn in_an_empty_root() {
    for name in [
        "c-gcc-pie",
        "c-gcc-dwarf4-fixed",
        "c-clang-gaps",
        "cpp-gcc",
        "rust",
    ] {
        let program = fixtures::build(name);
        let id = ElfFile::open(&program).unwrap().build_id;
        // clang does not ask for a build ID everywhere.
        let Some(id) = id else {
            panic!("{name} has no build ID")
        };
        let step = if name == "rust" { 7 } else { 1 };
        let here = report_here(&program, step);
        let there = report_in_root(&program, &id, step);
        assert!(here.lines().count() > 10);
        assert_eq!(here, there, "{name}");
    }
}

fn report_here(program: &Path, step: usize) -> String {
    let folder = program.with_extension("here");
    fs::create_dir_all(&folder).unwrap();
    archive_of(program, step).write(&folder, "a.rawstack");
    succeed(&folder, &["report", "--by", "line", "--csv", "a.rawstack"])
}

/// Run in a chroot of its own mount namespace: /rawstack, what it is linked with, /a.rawstack and /debug.
fn report_in_root(program: &Path, id: &BuildId, step: usize) -> String {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    fs::copy(env!("CARGO_BIN_EXE_rawstack"), at("rawstack")).unwrap();
    copy_libraries(Path::new(env!("CARGO_BIN_EXE_rawstack")), root.path());
    archive_of(program, step).write(root.path(), "a.rawstack");
    let tree = debug_tree(program, &id.to_string());
    copy_tree(&tree, &at("debug"));
    let output = Command::new("unshare")
        .args(["-m", "chroot"])
        .arg(root.path())
        .args([
            "/rawstack",
            "report",
            "--by",
            "line",
            "--csv",
            "--symbol-dir",
            "/debug",
            "/a.rawstack",
        ])
        .output()
        .expect("unshare; this test needs it: apt-get install util-linux");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "unshare and chroot need root: {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Copy the shared libraries that `program` needs, as `ldd` lists them.
fn copy_libraries(program: &Path, root: &Path) {
    let listed = fixtures::tool("ldd", [program]).stdout;
    for path in String::from_utf8(listed)
        .unwrap()
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let target = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
}

/// Check each place where a debug file may be: a tree, a plain folder, a folder laid out like a root, and a debuglink
/// that is followed from the stripped program.
#[test]
fn places_of_debug_files() {
    let program = fixtures::golden();
    let work = tempfile::tempdir().unwrap();
    let at = |path: &str| work.path().join(path);
    let debug = at("golden.debug");
    fixtures::tool(
        "objcopy",
        [
            "--only-keep-debug".as_ref(),
            program.as_os_str(),
            debug.as_os_str(),
        ],
    );
    fs::create_dir_all(at("flat/deep/er")).unwrap();
    fs::copy(&debug, at("flat/deep/er/whatever")).unwrap();
    fs::create_dir_all(at("root/opt/app")).unwrap();
    fs::copy(&program, at("root/opt/app/golden")).unwrap();
    fs::create_dir_all(at("linked/opt/app/.debug")).unwrap();
    let stripped = at("linked/opt/app/golden");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    fixtures::tool(
        "objcopy",
        [
            "--strip-all".as_ref(),
            link.as_ref(),
            program.as_os_str(),
            stripped.as_os_str(),
        ],
    );
    fs::rename(&debug, at("linked/opt/app/.debug/golden.debug")).unwrap();
    symlink(debug_tree(&program, fixtures::GOLDEN_ID), at("tree")).unwrap();
    let mut archive = Archive::new();
    archive.process(1, "golden", "/");
    let module = archive.module(super::archive::golden_module());
    let user = archive.user_stack(module, &[0x1016, 0x105f, 0x10a3]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let report = |folder: &str| {
        succeed(
            work.path(),
            &[
                "report",
                "--by",
                "line",
                "--csv",
                "a.rawstack",
                "--symbol-dir",
                folder,
            ],
        )
    };
    let tree = report("tree");
    assert!(
        tree.contains("innermost,/opt/app/golden,/src/golden.c,6,"),
        "{tree}"
    );
    for folder in ["flat", "root", "linked"] {
        assert_eq!(report(folder), tree, "{folder}");
    }
}

/// Check that a library which was moved to another address after it was built, as prelink does, has the answers of the one
/// that stayed: from the debug file alone, which knows the old addresses, and beside the moved file.
#[test]
fn moved_library() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    fs::copy(sources().join("work.c"), folder.join("work.c")).unwrap();
    let common = [
        "-O2",
        "-g",
        "-fPIC",
        "-shared",
        "work.c",
        "-Wl,--build-id=0x6d6f766564",
    ];
    for (name, place) in [("stayed.so", "0"), ("moved.so", "0x41000000")] {
        let place = format!("-Wl,-Ttext-segment={place}");
        compile(
            folder,
            "gcc",
            &[&common[..], &[&place, "-o", name]].concat(),
        );
    }
    let offsets = text_offsets(&folder.join("stayed.so"), 1);
    assert_eq!(offsets, text_offsets(&folder.join("moved.so"), 1));
    let objcopy = ["--only-keep-debug", "stayed.so", "debug/moved.debug"];
    fs::create_dir(folder.join("debug")).unwrap();
    compile(folder, "objcopy", &objcopy);
    compile(folder, "strip", &["moved.so", "-o", "stripped.so"]);
    let report = |program: &str, by_path: &str, places: &[&str]| {
        let path = folder.join(by_path);
        let mut archive = Archive::new();
        archive.process(1, "program", "/");
        let module = archive.module(Module {
            path: path.to_str().unwrap().to_owned(),
            ..recorded(&folder.join(program))
        });
        for &offset in &offsets {
            let user = archive.user_stack(module, &[offset]);
            archive.user_sample(user);
        }
        archive.write(folder, "a.rawstack");
        let args = ["report", "--by", "line", "--csv", "a.rawstack"];
        let text = succeed(folder, &[&args, places].concat());
        // Addresses without a name stand under the file's, in the order of names.
        let lines = text.replace(by_path, "LIBRARY");
        let lines: BTreeSet<String> = lines.lines().map(str::to_owned).collect();
        lines
    };
    let expected = report("stayed.so", "stayed.so", &[]);
    assert!(expected.len() > 10);
    let debug = ["--symbol-dir", "debug"];
    assert_eq!(report("moved.so", "gone.so", &debug), expected);
    assert_eq!(report("moved.so", "stripped.so", &debug), expected);
    assert_eq!(report("moved.so", "moved.so", &[]), expected);
}
