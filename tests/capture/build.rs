//! Compiles the test's BPF program as any user of the capture library would.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let source = "syscalls.bpf.c";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = env::var("DEP_RAWSTACK_BPF_INCLUDE").expect("rawstack-bpf names its headers");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    };
    SkeletonBuilder::new()
        .source(source)
        .clang_args([arch, "-mcpu=v3", "-I", &include])
        .build_and_generate(out.join("syscalls.skel.rs"))
        .expect("syscalls.bpf.c compiles");
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-changed={include}");
}
