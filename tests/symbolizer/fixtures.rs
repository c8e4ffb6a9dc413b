//! Programs that the tests build: with each compiler, each once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

/// Build ID of the golden program.
pub(crate) const GOLDEN_ID: &str = "00112233445566778899aabbccddeeff00112233";
/// Name of the golden program's function that would act on a terminal or a page.
pub(crate) const EVIL_NAME: &str = "ev\u{1b}[31mil<script>;\u{202e}x";

/// Folder of the sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/src")
        .canonicalize()
        .unwrap()
}

/// A folder that belongs to this run of the tests.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("symbolizer-fixtures");
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Debian's package of a program.
fn package(program: &str) -> &str {
    match program {
        "gcc" => "gcc",
        "g++" => "g++",
        "clang" | "clang++" => "clang",
        "ld.lld" => "lld",
        "llvm-symbolizer-19" => "llvm-19",
        "gdb" => "gdb",
        "objcopy" | "strip" | "as" | "ld" => "binutils",
        "unshare" => "util-linux",
        other => other,
    }
}

/// Run a program that a test needs; one that is missing fails the test and names its package.
pub(crate) fn tool<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(program: &str, args: I) -> Output {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{program}: {error}; this test needs it: apt-get install {}",
            package(program)
        )
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {errors}");
    output
}

/// A program: how it is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixture {
    /// File name of what is built.
    pub(crate) name: &'static str,
    /// Compiler.
    pub(crate) compiler: &'static str,
    /// Source file.
    pub(crate) source: &'static str,
    /// Options.
    pub(crate) options: &'static [&'static str],
}

/// All programs of the oracle tests: languages, compilers, DWARF versions, ways of linking.
pub(crate) const FIXTURES: [Fixture; 14] = [
    Fixture {
        name: "c-gcc-pie",
        compiler: "gcc",
        source: "work.c",
        options: &["-O2", "-g"],
    },
    Fixture {
        name: "c-gcc-dwarf4-fixed",
        compiler: "gcc",
        source: "work.c",
        options: &["-O2", "-g", "-gdwarf-4", "-no-pie"],
    },
    Fixture {
        name: "c-gcc-static",
        compiler: "gcc",
        source: "work.c",
        options: &["-O2", "-g", "-static"],
    },
    Fixture {
        name: "c-gcc-zlib",
        compiler: "gcc",
        source: "work.c",
        options: &["-O2", "-g", "-gz=zlib"],
    },
    Fixture {
        name: "c-clang-dwarf2",
        compiler: "clang",
        source: "work.c",
        options: &["-O2", "-g", "-gdwarf-2"],
    },
    Fixture {
        name: "c-clang-dwarf4",
        compiler: "clang",
        source: "work.c",
        options: &["-O2", "-g", "-gdwarf-4", "-gcolumn-info"],
    },
    Fixture {
        name: "c-clang-gaps",
        compiler: "clang",
        source: "work.c",
        options: &[
            "-O2",
            "-g",
            "-fuse-ld=lld",
            "-Wl,--rosegment",
            "-Wl,-z,separate-loadable-segments",
            "-Wl,-z,max-page-size=0x200000",
        ],
    },
    Fixture {
        name: "cpp-gcc",
        compiler: "g++",
        source: "shapes.cpp",
        options: &["-O2", "-g"],
    },
    Fixture {
        name: "cpp-gcc-lto",
        compiler: "g++",
        source: "shapes.cpp",
        options: &["-O2", "-g", "-flto"],
    },
    Fixture {
        name: "libcpp-gcc-dwarf3.so",
        compiler: "g++",
        source: "shapes.cpp",
        options: &["-O2", "-g", "-gdwarf-3", "-shared", "-fPIC"],
    },
    Fixture {
        name: "cpp-clang",
        compiler: "clang++",
        source: "shapes.cpp",
        options: &["-O2", "-g", "-fuse-ld=lld"],
    },
    Fixture {
        name: "rust",
        compiler: "rustc",
        source: "words.rs",
        options: &["-O", "-g"],
    },
    Fixture {
        name: "rust-lto-v0",
        compiler: "rustc",
        source: "words.rs",
        options: &["-O", "-g", "-Clto=fat", "-Csymbol-mangling-version=v0"],
    },
    Fixture {
        name: "rust-debug",
        compiler: "rustc",
        source: "words.rs",
        options: &["-g"],
    },
];

/// Do `make` once for each name in this run, whatever threads ask.
fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    static MADE: OnceLock<Mutex<HashMap<String, Arc<OnceLock<()>>>>> = OnceLock::new();
    let cell = {
        let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
        Arc::clone(made.entry(name.to_owned()).or_default())
    };
    let path = folder().join(name);
    cell.get_or_init(|| make(&path));
    path
}

impl Fixture {
    /// Build it, or take what this run has built.
    pub(crate) fn build(&self) -> PathBuf {
        once(self.name, |path| {
            let linker = if self.options.contains(&"-fuse-ld=lld") {
                "ld.lld"
            } else {
                "ld"
            };
            tool(linker, ["--version"]);
            let source = sources().join(self.source);
            let mut args: Vec<&OsStr> = self.options.iter().map(OsStr::new).collect();
            args.extend([OsStr::new("-o"), path.as_os_str(), source.as_os_str()]);
            tool(self.compiler, args);
        })
    }
}

/// Find a fixture by name and build it.
pub(crate) fn build(name: &str) -> PathBuf {
    FIXTURES
        .iter()
        .find(|fixture| fixture.name == name)
        .unwrap()
        .build()
}

/// The program of the golden tests: the same bytes of code with any compiler, at 0x401000, file offset 0x1000.
pub(crate) fn golden() -> PathBuf {
    once("golden", |path| {
        let source = sources().join("golden.s");
        let plain = path.with_extension("plain");
        let id = format!("-Wl,--build-id=0x{GOLDEN_ID}");
        let fixed = ["-nostdlib", "-static", "-Wl,-Ttext=0x401000", &id, "-o"].map(OsStr::new);
        tool(
            "gcc",
            fixed
                .into_iter()
                .chain([plain.as_os_str(), source.as_os_str()]),
        );
        let rename = format!("--redefine-sym=evil={EVIL_NAME}");
        tool(
            "objcopy",
            [OsStr::new(&rename), plain.as_os_str(), path.as_os_str()],
        );
    })
}

/// A `.build-id` tree with the debug information of `program` and nothing else; gives the tree's parent.
pub(crate) fn debug_tree(program: &Path, build_id: &str) -> PathBuf {
    let name = format!("{}-tree", program.file_name().unwrap().to_str().unwrap());
    once(&name, |root| {
        let (folder, file) = build_id.split_at(2);
        let folder = root.join(".build-id").join(folder);
        fs::create_dir_all(&folder).unwrap();
        let target = folder.join(format!("{file}.debug"));
        tool(
            "objcopy",
            [
                OsStr::new("--only-keep-debug"),
                program.as_os_str(),
                target.as_os_str(),
            ],
        );
    })
}
