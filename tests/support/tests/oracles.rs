//! The oracles themselves: they agree on a program whose functions are known.
#![forbid(unsafe_code)]

use std::path::Path;

use rawstack_test_support::oracle::{Answer, gdb, llvm, without_clone_suffix};
use rawstack_test_support::programs::{temp_dir, workload};
use rawstack_test_support::run::Run;
use rawstack_test_support::{debug_tree, elf};

/// Address of a function, clones of it included.
fn address_of_symbol(file: &Path, symbol: &str) -> u64 {
    let symbols = elf::symbols(file);
    let found = symbols
        .iter()
        .find(|(name, _)| without_clone_suffix(name) == symbol);
    *found.unwrap_or_else(|| panic!("nm knows no {symbol}")).1
}

fn names(answer: &Answer) -> Vec<&str> {
    answer
        .functions
        .iter()
        .map(|function| without_clone_suffix(&function.name))
        .collect()
}

/// Check that both oracles name the function and the file at its first byte, and the inlined ones further on.
#[test]
fn oracles_agree() {
    let file = workload("mixed-gap");
    let start = address_of_symbol(&file, "multiply");
    let addresses: Vec<u64> = (start..start + 0x80).collect();
    let (gdb, llvm) = (
        gdb::symbolize(&file, &addresses),
        llvm::symbolize(&file, &addresses),
    );
    assert_eq!(names(&gdb[0]), ["multiply"]);
    assert_eq!(names(&llvm[0]), ["multiply"]);
    for answers in [&gdb, &llvm] {
        let inner = &answers[0x40].functions[0];
        let (file, line) = (inner.file.as_deref().unwrap_or_default(), inner.line);
        assert!(
            file.ends_with("mixed_c.c") || file.ends_with("mixed.h"),
            "{inner:?}"
        );
        assert!(line.is_some(), "{inner:?}");
    }
    assert!(
        llvm.iter()
            .any(|answer| names(answer) == ["mix_once", "cell", "multiply"]),
        "{llvm:?}"
    );
    assert!(
        gdb.iter()
            .any(|answer| names(answer) == ["mix_once", "cell", "multiply"]),
        "{gdb:?}"
    );
}

/// Check that a debug tree holds names without code, and that gdb reads them there.
#[test]
fn debug_tree_has_names_only() {
    let file = workload("mixed-pie");
    let dir = temp_dir();
    debug_tree::make(dir.path(), &[&file]);
    let debug = debug_tree::path(dir.path(), &elf::build_id(&file));
    assert_eq!(elf::build_id(&debug), elf::build_id(&file));
    let start = address_of_symbol(&file, "multiply");
    assert_eq!(names(&llvm::symbolize(&debug, &[start])[0]), ["multiply"]);
    let code = Run::new("objdump")
        .args(["-h", "-j", ".text"])
        .arg(&debug)
        .success()
        .stdout;
    assert!(!code.contains("CONTENTS"), "{code}");
}
