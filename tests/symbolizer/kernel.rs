//! Kernel modules: object files that the kernel put together at run time, looked at elsewhere with what was recorded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rawstack_format::id::{BuildId, FrameIndex};
use rawstack_format::record::{
    FrameKind, KernelModule, KernelModules, KernelSymbol, KernelSymbols, Module, ModuleKind,
    Record, Sample,
};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use serde_json::Value;
use tempfile::TempDir;

use super::archive::Archive;
use super::fixtures::tool;
use super::pieces::compile;
use super::run::succeed;

/// Code in three sections, as modules have it, with an inlined function that is called from two of them.
const MODULE: &str = "
    volatile int sink;
    static inline __attribute__((always_inline)) int twist(int n)
    {
        sink += n;
        return n * 7 ^ sink;
    }
    __attribute__((noinline)) int mod_read(int n)
    {
        return twist(n) + 1;
    }
    __attribute__((section(\".init.text\"))) int mod_init(int n)
    {
        return twist(mod_read(n + 3)) - 2;
    }
    __attribute__((section(\".exit.text\"))) void mod_exit(void)
    {
        sink = mod_read(5);
    }
";

/// Distance of each section from `.text`: far away from each other, in another order, one below.
const SECTIONS: [(&str, u64); 3] = [
    (".text", 0),
    (".init.text", 0x10_0000),
    (".exit.text", 0u64.wrapping_sub(0x8000)),
];
/// Where the same object is linked for the oracle.
const TEXT: u64 = 0x40_0000;

/// A folder with the module `my-mod.ko` and the program `linked`, in which its sections have the same distances.
fn build(options: &[&str]) -> TempDir {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("mod.c"), MODULE).unwrap();
    let common = [
        "-O2",
        "-g",
        "-fno-pic",
        "-mcmodel=kernel",
        "-fcf-protection=none",
    ];
    let object = ["-c", "mod.c", "-o", "mod.o"];
    compile(
        work.path(),
        "gcc",
        &[&common[..], options, &object].concat(),
    );
    compile(
        work.path(),
        "ld",
        &[
            "-r",
            "--build-id=0x0102030405060708",
            "mod.o",
            "-o",
            "my-mod.ko",
        ],
    );
    let at = |(name, distance): (&str, u64)| {
        format!("--section-start={name}={:#x}", TEXT.wrapping_add(distance))
    };
    let [text, init, exit] = SECTIONS.map(at);
    let args = [
        &text, &init, &exit, "-e", "mod_read", "mod.o", "-o", "linked",
    ];
    compile(work.path(), "ld", &args);
    work
}

/// Addresses of the code of `linked`.
fn addresses(work: &Path) -> Vec<u64> {
    let file = ElfFile::open(&work.join("linked")).unwrap();
    let sections = SECTIONS.iter().map(|(name, _)| file.section(name).unwrap());
    let ranges = sections.map(|section| section.svma..section.svma + section.size);
    ranges.flatten().collect()
}

/// How many of the addresses have each innermost function, file and line, as llvm-symbolizer has them.
fn expected(work: &Path, addresses: &[u64]) -> BTreeMap<(String, String, u64), u64> {
    let program = work.join("linked");
    let fixed = [
        "--inlines",
        "--output-style=JSON",
        "-e",
        program.to_str().unwrap(),
    ];
    let numbers = addresses.iter().map(|address| format!("{address:#x}"));
    let told = tool(
        "llvm-symbolizer-19",
        fixed.map(str::to_owned).into_iter().chain(numbers),
    )
    .stdout;
    let rows: Vec<Value> = serde_json::from_slice(&told).unwrap();
    let mut counts = BTreeMap::new();
    for row in rows {
        let frame = &row["Symbol"][0];
        let text = |key: &str| frame[key].as_str().unwrap().to_owned();
        let key = (
            text("FunctionName"),
            text("FileName"),
            frame["Line"].as_u64().unwrap(),
        );
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

/// An archive with a kernel sample at each of the addresses.
fn record(work: &Path, addresses: &[u64], sections: bool) {
    let mut archive = Archive::new();
    let build_id = BuildId::from_hex("0102030405060708");
    let row = |offset: u64, name: &str| KernelSymbol {
        offset,
        kind: b't',
        module: "my_mod".to_owned(),
        name: name.to_owned(),
    };
    archive.record(Record::KernelSymbols(KernelSymbols {
        part: 0,
        parts: 1,
        build_id: None,
        text_size: 0x1000,
        symbols: vec![row(0, "from_kallsyms")],
    }));
    let recorded = SECTIONS.map(|(name, distance)| (name.to_owned(), distance));
    archive.record(Record::KernelModules(KernelModules {
        modules: vec![KernelModule {
            name: "my_mod".to_owned(),
            build_id: build_id.clone(),
            size: 0x1000,
            sections: if sections {
                recorded.to_vec()
            } else {
                Vec::new()
            },
        }],
    }));
    archive.process(1, "idle", "/");
    let module = archive.module(Module {
        kind: ModuleKind::KernelModule,
        build_id,
        path: "my_mod".to_owned(),
        ..Module::default()
    });
    for address in addresses {
        let frame: FrameIndex =
            archive.frame(FrameKind::KernelLeaf, module, address.wrapping_sub(TEXT));
        let kernel = archive.stack(&[frame]);
        archive.sample(Sample {
            kernel,
            ..Sample::default()
        });
    }
    archive.write(work, "a.rawstack");
}

/// How many samples each innermost function, file and line has in the report.
fn reported(work: &Path, folder: &str) -> BTreeMap<(String, String, u64), u64> {
    let args = [
        "report",
        "--by",
        "line",
        "--json",
        "a.rawstack",
        "--symbol-dir",
        folder,
    ];
    let report: Value = serde_json::from_str(&succeed(work, &args)).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let key = (
            text("name"),
            text("file"),
            row["line"].as_u64().unwrap_or(0),
        );
        (key, row["self"].as_u64().unwrap() / 1_000_000)
    });
    rows.filter(|(_, count)| *count > 0).collect()
}

/// Check functions, inlined ones and lines of a kernel module at every byte of its three sections, by the recorded places
/// of these: plain, compressed as a whole in each way, cut down to debug information, with compressed sections.
#[test]
fn module_by_its_sections() {
    for options in [&["-gdwarf-5"][..], &["-gdwarf-4"]] {
        let work = build(options);
        let work = work.path();
        let addresses = addresses(work);
        let expected = expected(work, &addresses);
        assert!(expected.keys().any(|(name, _, _)| name == "twist"));
        assert!(expected.keys().any(|(name, _, _)| name == "mod_exit"));
        record(work, &addresses, true);
        for (folder, script) in [
            ("plain", "cp my-mod.ko plain"),
            (
                "xz",
                "xz -k --check=crc32 --lzma2=dict=1MiB -c my-mod.ko > xz/my-mod.ko.xz",
            ),
            ("zst", "zstd -q my-mod.ko -o zst/my-mod.ko.zst"),
            ("gz", "gzip -c my-mod.ko > gz/my-mod.ko.gz"),
            (
                "cut",
                "objcopy --only-keep-debug my-mod.ko cut/my-mod.ko.debug",
            ),
            (
                "zlib",
                "objcopy --compress-debug-sections=zlib my-mod.ko zlib/my-mod.ko",
            ),
        ] {
            let script = format!("set -e; mkdir {folder}; {script}");
            compile(work, "sh", &["-c", &script]);
            assert_eq!(reported(work, folder), expected, "{options:?} {folder}");
        }
    }
}

/// Check that without the places of its sections only what is in `.text` is taken from the module's file, and the rest
/// from kallsyms; and that a module of another build names nothing.
#[test]
fn module_without_places() {
    let work = build(&[]);
    let work = work.path();
    let addresses = addresses(work);
    let expected = expected(work, &addresses);
    record(work, &addresses, false);
    let found = reported(work, ".");
    let in_text = |name: &str| ["mod_read", "twist"].contains(&name);
    for (key, count) in &found {
        assert!(
            in_text(&key.0) || key.0 == "from_kallsyms" || key.0.starts_with("[my_mod]+"),
            "{key:?}"
        );
        assert!(
            !in_text(&key.0) || expected.get(key).is_some_and(|all| count <= all),
            "{key:?}"
        );
    }
    assert!(found.keys().any(|key| key.0 == "mod_read" && key.2 > 0));
    compile(
        work,
        "sh",
        &[
            "-c",
            "mkdir other && ld -r --build-id=0x99 mod.o -o other/my-mod.ko",
        ],
    );
    let found = reported(work, "other");
    assert!(found.keys().all(|key| !in_text(&key.0)), "{found:?}");
}
