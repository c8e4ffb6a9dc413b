//! Compiles the tests' BPF programs as any user of the capture library would.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = env::var("DEP_RAWSTACK_BPF_INCLUDE").expect("rawstack-bpf names its headers");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    };
    for name in ["syscalls", "switched_out"] {
        let source = format!("{name}.bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .clang_args([arch, "-mcpu=v3", "-I", &include])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("failed to compile {source}: {error:#}"));
        println!("cargo:rerun-if-changed={source}");
    }
    println!("cargo:rerun-if-changed={include}");
}
