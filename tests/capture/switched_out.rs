//! Kernel stacks of tasks that do not run, by the rules that the programs remember: as the kernel's own unwinder has them.
//!
//! Needs root and a kernel from 6.18 on; without them the test fails and says so. x86-64 only, as the rules are.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rawstack_capture_test::switched_out::{SwitchedOutSkel, SwitchedOutSkelBuilder};

/// Waits in pipes, for children, for time to pass, and for pages of a file that the kernel itself touches.
const SCRIPT: &str = "dd if=/dev/urandom of=$FILE bs=1M count=8 conv=fsync 2>/dev/null
for i in {1..15}; do
    python3 -c 'import mmap, os
file = os.open(os.environ[\"FILE\"], os.O_RDONLY)
pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
out = os.memfd_create(\"out\")
for at in range(0, len(pages) - 4096, 65536):
    pages.madvise(mmap.MADV_DONTNEED)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.write(out, memoryview(pages)[at : at + 4096])'

    find /usr/lib /proc/1 -type f 2>/dev/null | cat | wc -l
    (sleep 0.01 & sleep 0.02; wait)
    read -t 0.001 line </dev/zero
    dd if=/dev/zero bs=1k count=2000 2>/dev/null | tail -c 10
done >/dev/null";
/// How often threads of this process wait for each other.
const ROUNDS: usize = 5_000;

/// The address of a symbol of the kernel proper.
fn address(kallsyms: &str, name: &str) -> u64 {
    let mut lines = kallsyms.lines().map(|line| line.split(' '));
    let found = lines.find_map(|mut words| {
        let address = words.next()?;
        (words.nth(1) == Some(name)).then_some(address)
    });
    u64::from_str_radix(found.unwrap_or_else(|| panic!("{name} in kallsyms")), 16).unwrap()
}

fn tell_tables(skel: &mut SwitchedOutSkel<'_>) {
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    let address = |name| address(&kallsyms, name);
    let tables = &mut skel.maps.bss_data.as_deref_mut().unwrap().orc_tables;
    tables.sched_text = address("__sched_text_start");
    tables.sched_text_end = address("__sched_text_end");
    tables.lock_text = address("__lock_text_start");
    tables.lock_text_end = address("__lock_text_end");
    tables.places = address("__start_orc_unwind_ip");
    tables.places_end = address("__stop_orc_unwind_ip");
    tables.entries = address("__start_orc_unwind");
    tables.text = address("_stext");
    tables.text_end = address("_etext");
}

/// Threads that wait for each other: on locks, in sockets, for time to pass.
fn wait_in_threads() {
    let (sender, receiver) = channel();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                sender.send(round).unwrap();
                near.write_all(&[1]).unwrap();
                near.read_exact(&mut [0]).unwrap();
            }
        });
        scope.spawn(move || {
            for round in 0..ROUNDS {
                assert_eq!(receiver.recv(), Ok(round));
                far.read_exact(&mut [0]).unwrap();
                far.write_all(&[1]).unwrap();
            }
        });
        scope.spawn(|| (0..100).for_each(|_| thread::sleep(Duration::from_millis(1))));
    });
}

/// Check that rules find each stack as the kernel's unwinder does, and that they find most stacks: on the whole machine,
/// while programs wait in many ways.
#[test]
fn rules_find_the_frames_of_the_kernels_unwinder() {
    let mut room = MaybeUninit::uninit();
    let mut open = SwitchedOutSkelBuilder::default().open(&mut room).unwrap();
    let data = open.maps.rodata_data.as_deref_mut().unwrap();
    data.capture_cfg.kernel_stacks = 1;
    data.capture_cfg.max_kernel_frames = 127;
    data.capture_cfg.thread_size = 16 << 10;
    let mut skel = open.load().expect("needs root and a kernel from 6.18 on");
    tell_tables(&mut skel);
    let link = skel.progs.on_switch.attach().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let mut command = Command::new("bash");
    let mut child = command
        .args(["-c", SCRIPT])
        .env("FILE", &file)
        .spawn()
        .unwrap();
    wait_in_threads();
    assert!(child.wait().unwrap().success());
    drop(link);
    fs::remove_file(file).unwrap();
    let data = skel.maps.bss_data.as_deref().unwrap();
    let counts = (data.same, data.different, data.failed, data.helped);
    println!("same, different, helper failed, helper needed: {counts:?}");
    assert_eq!(
        data.different, 0,
        "{counts:?}, the last: {:#x?}",
        data.wrong
    );
    let others = data.failed + data.helped;
    assert!(data.same > 20_000 && data.same > 4 * others, "{counts:?}");
}
