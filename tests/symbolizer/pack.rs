//! `rawstack symbols --pack`: what it takes along, that other readers take it for an ELF file, and that names are the same.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rawstack_symbolizer::debug_file::elf::ElfFile;

use super::fixtures;
use super::offline::archive_of;
use super::run::{rawstack, succeed};

/// Check that a packed tree and a packed tar give the same names as the program itself, are the same bytes each time,
/// are smaller, and are read by elfutils without a word.
#[test]
fn names_without_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::copy(fixtures::build("c-gcc-pie"), here.join("program")).unwrap();
    archive_of(&here.join("program"), 3).write(here, "a.rawstack");
    let report = |places: &[&str]| {
        let args = [
            "report",
            "--symbols-only",
            "--by",
            "function",
            "--csv",
            "a.rawstack",
        ];
        succeed(here, &[&args[..], places].concat())
    };
    let before = report(&[]);
    let pack = |out: &str, more: &[&str]| {
        let ran = rawstack(
            here,
            &[&["symbols", "a.rawstack", "--pack", out], more].concat(),
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    let told = pack("tree", &[]);
    assert!(
        told.contains("1 files in ") && told.contains("whose originals have "),
        "{told}"
    );
    pack("a.tar", &[]);
    pack("b.tar", &[]);
    pack("whole", &["--pack-whole"]);
    assert!(fs::read(here.join("a.tar")).unwrap() == fs::read(here.join("b.tar")).unwrap());
    let build_id = ElfFile::open(&here.join("program"))
        .unwrap()
        .build_id
        .unwrap()
        .to_string();
    let place = format!(".build-id/{}/{}", &build_id[..2], &build_id[2..]);
    let packed = here.join("tree").join(&place);
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(length(&packed) < length(&here.join("program")));
    assert!(
        fs::read(here.join("whole").join(&place)).unwrap()
            == fs::read(here.join("program")).unwrap()
    );
    check_elfutils(&packed, &build_id);
    let listed = Command::new("tar")
        .arg("-tf")
        .arg(here.join("a.tar"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().trim(), place);

    for format in ["v7", "ustar", "gnu", "pax"] {
        tar_of(here, format, "tree");
    }
    fs::remove_file(here.join("program")).unwrap();
    assert_ne!(report(&[]), before);
    for place in [
        "tree",
        "a.tar",
        "whole",
        "v7.tar",
        "ustar.tar",
        "gnu.tar",
        "pax.tar",
    ] {
        assert_eq!(report(&["--symbol-dir", place]), before, "{place}");
    }
    let ran = rawstack(here, &["symbols", "a.rawstack", "--pack", "none"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("no file of a module was found"),
        "{}",
        ran.err
    );
}

/// Make a tar file of `folder` by GNU tar in one of its formats, below as long a name as that format can hold.
fn tar_of(here: &Path, format: &str, folder: &str) {
    let longest = match format {
        "v7" => 20,
        "ustar" => 100,
        _ => 200,
    };
    let tar = Command::new("tar")
        .current_dir(here)
        .args(["--format", format, "--transform"])
        .arg(format!("s,^,{}/,", "n".repeat(longest)))
        .args(["-cf", &format!("{format}.tar"), folder])
        .output()
        .unwrap();
    assert!(
        tar.status.success(),
        "{}",
        String::from_utf8_lossy(&tar.stderr)
    );
}

/// Check that a tar file whose name of a file is gigabytes long is read in bounded memory, and the files before it found.
#[test]
fn endless_name_in_a_tar() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::copy(fixtures::build("c-gcc-pie"), here.join("program")).unwrap();
    archive_of(&here.join("program"), 3).write(here, "a.rawstack");
    let pack = ["symbols", "a.rawstack", "--pack", "a.tar"];
    assert_eq!(rawstack(here, &pack).code, 0);
    let args = ["report", "--symbols-only", "--csv", "a.rawstack"];
    let before = succeed(here, &args);
    fs::remove_file(here.join("program")).unwrap();
    // Behind the entry, in place of the end: a long name as GNU tar writes one, of 8 GiB that the file does not even hold.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(8 << 30);
    header.set_cksum();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(here.join("a.tar"))
        .unwrap();
    let end = file.metadata().unwrap().len() - 1024;
    file.write_all_at(header.as_bytes(), end).unwrap();
    file.set_len(end + 512 + (8 << 30)).unwrap();
    let limited = Command::new("prlimit")
        .current_dir(here)
        .args(["--data=536870912", env!("CARGO_BIN_EXE_rawstack")])
        .args(args)
        .args(["--no-cache", "--symbol-dir", "a.tar"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(limited.stdout).unwrap(), before);
}

/// Check that a packed file keeps the stubs of the linkage table, for which there is no unwind information, and names them.
#[test]
fn stubs_without_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in ["c-gcc-pie", "cpp-clang"] {
        let program = here.join(name);
        fs::copy(fixtures::build(name), &program).unwrap();
        archive_of(&program, 3).write(here, "a.rawstack");
        let pack = ["symbols", "a.rawstack", "--pack", name.get(..3).unwrap()];
        assert_eq!(rawstack(here, &pack).code, 0);
        let original = ElfFile::open(&program).unwrap();
        let build_id = original.build_id.as_ref().unwrap().to_string();
        let place = format!(
            "{}/.build-id/{}/{}",
            pack[3],
            &build_id[..2],
            &build_id[2..]
        );
        let packed = ElfFile::open(&here.join(&place)).unwrap();
        let mut stubs = Vec::new();
        for (number, table) in original.sections.iter().enumerate() {
            if table.is_linkage_table() {
                let kept = &packed.sections[number];
                let content =
                    |file: &ElfFile, offset| file.range(offset, table.size).unwrap().to_vec();
                assert!(content(&packed, kept.offset) == content(&original, table.offset));
                let addresses = (table.svma..table.svma + table.size).step_by(16);
                // Relocations of the others are among those of all data, and stay behind.
                if &*table.name == ".plt" {
                    stubs.extend(addresses.map(|address| format!("{address:#x}")));
                }
            }
        }
        let names = |file: &str| {
            let args = ["symbolize", "--symbols-only", "--addresses", "--file", file];
            let stubs = stubs.iter().map(String::as_str);
            succeed(here, &args.into_iter().chain(stubs).collect::<Vec<_>>())
        };
        let before = names(name);
        assert!(
            packed.is_debug_only() && before.contains("@plt"),
            "{before}"
        );
        assert_eq!(names(&place), before);
    }
}

fn check_elfutils(packed: &Path, build_id: &str) {
    let read = Command::new("eu-readelf")
        .args(["-hlS", "-s", "-n", "--debug-dump=frames"])
        .arg(packed)
        .output();
    let read = read.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&read.stdout),
        String::from_utf8_lossy(&read.stderr),
    );
    assert!(read.status.success() && err.is_empty(), "{err}");
    for part in [build_id, ".symtab", "advance_loc"] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
}
