//! Secrets of recorded processes and of the kernel: none of them is in an archive.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

use rawstack_test_support::json::rawstack_on;
use rawstack_test_support::programs::workload;
use zstd::stream::read::Decoder;

use crate::recording::{Lab, text};

/// Begins every zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// All bytes of an archive: as they are, and what each of its zstd frames holds.
fn all_bytes(archive: &Path) -> Vec<u8> {
    let raw = fs::read(archive).expect("the archive");
    let mut all = raw.clone();
    let mut frames = 0;
    for at in 0..raw.len() {
        if raw[at..].starts_with(&ZSTD) {
            let decoder = Decoder::new(&raw[at..]).expect("a decoder");
            if io::copy(&mut decoder.single_frame(), &mut all).is_ok() {
                frames += 1;
            }
        }
    }
    assert!(frames > 3, "only {frames} frames were unpacked");
    all
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A secret of 64 bytes that nothing else has.
fn secret(number: u8) -> String {
    let word = format!(
        "canary-{number}-{:016x}",
        0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(number) << 40
    );
    let mut secret = word.repeat(3);
    secret.truncate(64);
    secret
}

/// Start and end of the kernel's code in memory.
fn kernel_text() -> (u64, u64) {
    let symbols = fs::read_to_string("/proc/kallsyms").expect("kallsyms");
    let address = |name: &str| {
        let line = symbols
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")));
        let number = line.and_then(|line| line.split(' ').next());
        u64::from_str_radix(number.expect("a symbol that every kernel has"), 16)
            .expect("an address")
    };
    let range = (address("_stext"), address("_etext"));
    assert!(range.0 > 0, "the kernel hides its addresses from this test");
    range
}

/// Check that arguments, environment, file contents, heap and stack of a recorded process leave no trace, that no address
/// of the kernel does, and that the archive is its owner's alone.
#[test]
fn none_in_an_archive() {
    let lab = Lab::new();
    let secrets: Vec<String> = (0..3).map(secret).collect();
    let file = lab.path("file");
    fs::write(&file, &secrets[0]).unwrap();
    let archive = lab.path("archive.rawstack");
    let output = lab
        .recorder(
            "archive.rawstack",
            &["-a", "-F", "1997", "--kernel-symbols", "all", "--"],
        )
        .args([text(&workload("canary")), "2", text(&file), &secrets[1]])
        .env("CANARY", &secrets[2])
        .success();
    assert!(output.stdout.contains("rounds "), "{}", output.stdout);

    let bytes = all_bytes(&archive);
    let dump = rawstack_on("dump", &archive).success().stdout;
    // What is looked for can be found: the process is there by its name.
    assert!(contains(&bytes, b"canary") && dump.contains("\"comm\":\"canary\""));
    for secret in &secrets {
        for part in secret.as_bytes().windows(8) {
            let word = u64::from_le_bytes(part.try_into().unwrap());
            assert!(
                !contains(&bytes, part),
                "{:?} is in the archive",
                String::from_utf8_lossy(part)
            );
            assert!(
                !dump.contains(&format!("{word:#x}")),
                "{word:#x} is told as an address"
            );
        }
    }
    let (start, end) = kernel_text();
    let address = bytes
        .windows(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .find(|word| (start..end).contains(word));
    assert_eq!(address, None, "an address of the kernel is in the archive");
    let mode = fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
