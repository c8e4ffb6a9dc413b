//! Compiles the BPF programs and generates their skeleton into `OUT_DIR`.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let sources = Path::new("src/c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => {
            panic!("rawstack-bpf knows the user registers of x86_64 and aarch64, not of {other:?}")
        }
    };
    let target = format!("-D__TARGET_ARCH_{arch}");
    // File names go into the object, for the verifier's messages: not where this machine has them.
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let builds = out.ancestors().nth(2).unwrap_or(&out);
    let short = [(manifest.as_path(), "bpf"), (builds, "build")];
    let [sources_short, builds_short] =
        short.map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()));
    let mut builder = SkeletonBuilder::new();
    builder.source(sources.join("recorder.bpf.c")).clang_args([
        target.as_str(),
        sources_short.as_str(),
        builds_short.as_str(),
        // No atomics with a result: kernels before 5.12 refuse them even in code that is never reached.
        "-mcpu=v2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wno-sign-compare",
    ]);
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    if let Err(error) = builder.build_and_generate(out.join("recorder.skel.rs")) {
        panic!(
            "failed to compile src/c/recorder.bpf.c (it needs clang 14 or newer; CLANG names another): {error:#}"
        );
    }
    println!("cargo:rerun-if-changed=src/c");
    println!("cargo:rerun-if-env-changed=CLANG");
    // Programs outside this crate that include capture.bpf.h find it through DEP_RAWSTACK_BPF_INCLUDE.
    let include = sources.canonicalize().expect("src/c is part of the crate");
    println!("cargo:include={}", include.display());
}
