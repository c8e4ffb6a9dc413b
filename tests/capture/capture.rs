//! The capture library in the hands of a program that is not the recorder: every transition of an ID, for real.
//!
//! Needs root and a kernel with `bpf_task_work` (6.18 and newer); without them each test fails and says so.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use rawstack_bpf::{Lookup, LostReason, Stack, StackTable, State, Stream};
use rawstack_capture_test::syscalls::{SyscallsSkel, SyscallsSkelBuilder};

const CLOCK_NANOSLEEP: i64 = if cfg!(target_arch = "x86_64") {
    230
} else {
    115
};
const EXECVE: i64 = if cfg!(target_arch = "x86_64") {
    59
} else {
    221
};
const EXIT_GROUP: i64 = if cfg!(target_arch = "x86_64") {
    231
} else {
    94
};
const RT_SIGRETURN: i64 = if cfg!(target_arch = "x86_64") {
    15
} else {
    139
};
const GETPPID: i64 = if cfg!(target_arch = "x86_64") {
    110
} else {
    173
};

/// What the program is to do.
struct Setup {
    syscall: i64,
    at_exit_too: bool,
    ring_bytes: u32,
    threads: u32,
    bound: usize,
}

impl Setup {
    fn of(syscall: i64) -> Self {
        Self {
            syscall,
            at_exit_too: false,
            ring_bytes: 1 << 20,
            threads: 1024,
            bound: 1024,
        }
    }
}

/// The loaded program with the user-space end of its stacks.
struct Logger<'a> {
    skel: SyscallsSkel<'a>,
    _links: Vec<Link>,
    stream: Stream,
    table: StackTable,
}

impl<'a> Logger<'a> {
    fn start(room: &'a mut MaybeUninit<OpenObject>, setup: &Setup) -> Self {
        let mut open = SyscallsSkelBuilder::default().open(room).unwrap();
        let data = open.maps.rodata_data.as_deref_mut().unwrap();
        data.syscall_nr = setup.syscall;
        data.at_exit_too = u32::from(setup.at_exit_too);
        data.capture_cfg.user_stacks = 1;
        data.capture_cfg.kernel_stacks = 1;
        data.capture_cfg.max_user_frames = 127;
        data.capture_cfg.max_kernel_frames = 127;
        data.capture_cfg.thread_size = 16 << 10;
        open.maps.events.set_max_entries(setup.ring_bytes).unwrap();
        open.maps.slots.set_max_entries(setup.threads).unwrap();
        let skel = open.load().expect("needs root and a kernel from 6.18 on");
        let progs = &skel.progs;
        let links = vec![
            progs
                .capture_on_exit
                .attach_raw_tracepoint("sched_process_exit")
                .unwrap(),
            progs
                .capture_on_exec
                .attach_raw_tracepoint("sched_process_exec")
                .unwrap(),
            progs.on_enter.attach_raw_tracepoint("sys_enter").unwrap(),
            progs.on_exit.attach_raw_tracepoint("sys_exit").unwrap(),
        ];
        let maps = &skel.maps;
        let stream = Stream::new(&maps.events, &maps.slots, &maps.cpu_states).unwrap();
        Self {
            skel,
            _links: links,
            stream,
            table: StackTable::new(setup.bound),
        }
    }

    fn watch(&mut self, pid: u32) {
        self.skel.maps.bss_data.as_deref_mut().unwrap().target = pid;
    }

    /// Wait until the program has logged `count` IDs; all that it has logged.
    fn logged(&self, count: usize) -> Vec<u64> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let made = self.skel.maps.bss_data.as_deref().unwrap().count as usize;
            if made >= count {
                thread::sleep(Duration::from_millis(10)); // the last may be on its way into the array
                return (0..made.min(4096)).map(|at| self.id(at)).collect();
            }
            assert!(
                Instant::now() < deadline,
                "only {made} of {count} IDs were logged"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn id(&self, at: usize) -> u64 {
        let key = u32::try_from(at).unwrap().to_ne_bytes();
        let value = self
            .skel
            .maps
            .logged
            .lookup(&key, MapFlags::ANY)
            .unwrap()
            .unwrap();
        u64::from_ne_bytes(value.try_into().unwrap())
    }

    fn take_in(&mut self) {
        self.table.take_in(&mut self.stream).unwrap();
    }

    /// Wait until the ID is no longer pending: its stack, or `None` when it was lost.
    fn settled(&mut self, id: u64) -> Option<Stack> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            self.take_in();
            match self.table.lookup(id) {
                Lookup::Ready(stack) => return Some(stack.clone()),
                Lookup::Lost(LostReason::Dropped) => return None,
                Lookup::Lost(reason) => panic!("{reason:?}"),
                Lookup::Pending => assert!(Instant::now() < deadline, "still pending"),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ready(&mut self, id: u64) -> Stack {
        self.settled(id).expect("it is not lost")
    }
}

/// A shell that waits for a line, then runs `script`.
fn shell(script: &str) -> Child {
    let script = format!("read line; {script}");
    let child = Command::new("bash")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    child.expect("bash runs")
}

fn go(child: &mut Child) {
    drop(child.stdin.take());
}

/// Check that an ID logged inside a blocking system call is pending while the task sleeps, and ready with both halves
/// after it returned.
#[test]
fn pending_while_blocked_then_ready() {
    let mut room = MaybeUninit::uninit();
    let mut logger = Logger::start(&mut room, &Setup::of(CLOCK_NANOSLEEP));
    let mut child = shell("exec sleep 1");
    logger.watch(child.id());
    go(&mut child);
    let id = logger.logged(1)[0];
    logger.take_in();
    assert_eq!(logger.table.lookup(id), Lookup::Pending);
    let stack = logger.ready(id);
    assert_eq!((stack.state, stack.pid), (State::Complete, child.id()));
    assert!(!stack.kernel.is_empty() && stack.kernel.iter().all(|&address| address >> 63 == 1));
    assert!(!stack.user.is_empty() && stack.user.iter().all(|&address| address >> 63 == 0));
    assert!(child.wait().unwrap().success());
}

/// Check that a thread killed while blocked still gives its user half whole: the kernel runs what is due on return
/// before it lets a signal kill.
#[test]
fn killed_while_blocked() {
    let mut room = MaybeUninit::uninit();
    let mut logger = Logger::start(&mut room, &Setup::of(CLOCK_NANOSLEEP));
    let mut child = shell("exec sleep 100");
    logger.watch(child.id());
    go(&mut child);
    let id = logger.logged(1)[0];
    logger.take_in();
    assert_eq!(logger.table.lookup(id), Lookup::Pending);
    child.kill().unwrap();
    child.wait().unwrap();
    let stack = logger.ready(id);
    assert_eq!(stack.state, State::Complete);
    assert!(!stack.user.is_empty());
}

/// Check that a thread that ends by itself ends its ID as exited, with the user frames that memory still showed.
#[test]
fn exited() {
    let mut room = MaybeUninit::uninit();
    let mut logger = Logger::start(&mut room, &Setup::of(EXIT_GROUP));
    let mut child = shell("exit 0");
    logger.watch(child.id());
    go(&mut child);
    let id = logger.logged(1)[0];
    let stack = logger.ready(id);
    assert_eq!(stack.state, State::Exited);
    assert!(!stack.user.is_empty());
    assert!(!stack.kernel.is_empty());
    child.wait().unwrap();
}

/// Check that an ID reserved inside a successful execve ends as exec'd away, without frames of the new program.
#[test]
fn execed_away() {
    let mut room = MaybeUninit::uninit();
    let mut logger = Logger::start(&mut room, &Setup::of(EXECVE));
    let mut child = shell("exec true");
    logger.watch(child.id());
    go(&mut child);
    let id = logger.logged(1)[0];
    let stack = logger.ready(id);
    assert_eq!((stack.state, stack.user.len()), (State::Execed, 0));
    child.wait().unwrap();
}

/// Check that all IDs of one kernel entry share one user half, and that each has its own kernel half.
#[test]
fn one_entry_shares_one_user_half() {
    let mut room = MaybeUninit::uninit();
    let setup = Setup {
        at_exit_too: true,
        ..Setup::of(CLOCK_NANOSLEEP)
    };
    let mut logger = Logger::start(&mut room, &setup);
    let mut child = shell("exec sleep 0.2");
    logger.watch(child.id());
    go(&mut child);
    let ids = logger.logged(2);
    let [at_entry, at_exit] = [ids[0], ids[1]].map(|id| logger.ready(id));
    assert_eq!(
        (at_entry.state, at_exit.state),
        (State::Complete, State::Complete)
    );
    assert!(std::ptr::eq(
        &raw const *at_entry.user,
        &raw const *at_exit.user
    ));
    assert_ne!(at_entry.kernel, at_exit.kernel);
    child.wait().unwrap();
}

/// Check that registers replaced before the return (sigreturn) are not taken for the stack of the tick.
#[test]
fn replaced_registers() {
    let mut room = MaybeUninit::uninit();
    let mut logger = Logger::start(&mut room, &Setup::of(RT_SIGRETURN));
    let mut child = shell("trap : USR1; kill -USR1 $$; sleep 0.2");
    logger.watch(child.id());
    go(&mut child);
    let id = logger.logged(1)[0];
    let stack = logger.ready(id);
    assert_eq!((stack.state, stack.user.len()), (State::Faulted, 0));
    child.wait().unwrap();
}

/// Check that a thread for which there is no slot gets what the tick itself can see, and that its state says so.
#[test]
fn no_slot() {
    let mut room = MaybeUninit::uninit();
    let setup = Setup {
        threads: 1,
        ..Setup::of(CLOCK_NANOSLEEP)
    };
    let mut logger = Logger::start(&mut room, &setup);
    logger.watch(std::process::id());
    // Both are in the kernel at once, however busy the machine is.
    let together = Arc::new(Barrier::new(2));
    let sleeper = |together: Arc<Barrier>| {
        move || {
            together.wait();
            thread::sleep(Duration::from_secs(1));
        }
    };
    let sleepers: Vec<_> = (0..2)
        .map(|_| thread::spawn(sleeper(Arc::clone(&together))))
        .collect();
    let mut ids = Vec::new();
    while ids.len() < 2 {
        ids = logger.logged(2);
    }
    sleepers
        .into_iter()
        .for_each(|sleeper| sleeper.join().unwrap());
    let states: Vec<State> = ids.iter().map(|&id| logger.ready(id).state).collect();
    assert!(states.contains(&State::ScheduleFailed), "{states:?}");
    let failed = ids
        .iter()
        .find(|&&id| logger.ready(id).state == State::ScheduleFailed)
        .unwrap();
    assert!(!logger.ready(*failed).user.is_empty());
}

/// Check that IDs that found the ring buffer full are lost, not pending for ever, and that the losses are counted:
/// reserved is what arrived and what was lost, exactly.
#[test]
fn buffer_full() {
    let mut room = MaybeUninit::uninit();
    let setup = Setup {
        ring_bytes: 4096,
        bound: 1 << 16,
        ..Setup::of(GETPPID)
    };
    let mut logger = Logger::start(&mut room, &setup);
    // One call of os.getppid() is one system call; a line of output says that the calls are made.
    let program = "import os, sys\nfor line in sys.stdin:\n  for i in range(int(line)): os.getppid()\n  print()";
    let mut child = Command::new("python3")
        .args(["-u", "-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut call = |times: &[u8]| {
        stdin.write_all(times).unwrap();
        stdout.read_exact(&mut [0]).unwrap();
    };
    call(b"0\n");
    logger.watch(child.id());
    call(b"1000\n");
    logger.take_in();
    // What comes once there is room again brings the account of what was lost before it.
    call(b"1\n");
    let ids = logger.logged(1001);
    assert_eq!(ids.len(), 1001);
    assert_eq!(logger.ready(ids[1000]).state, State::Complete);
    let mut states = HashMap::<Option<State>, usize>::new();
    for &id in &ids {
        let state = logger.settled(id).map(|stack| stack.state);
        *states.entry(state).or_default() += 1;
    }
    assert!(
        states[&None] > 900 && states[&Some(State::Complete)] > 0,
        "{states:?}"
    );
    let counts = logger.stream.counts().unwrap();
    assert_eq!(counts.reserved, 1001);
    drop(stdin);
    child.wait().unwrap();
}

/// Check that a table at its bound refuses and counts, and takes in again once there is room.
#[test]
fn bounded_table() {
    let mut room = MaybeUninit::uninit();
    let setup = Setup {
        at_exit_too: true,
        bound: 1,
        ..Setup::of(CLOCK_NANOSLEEP)
    };
    let mut logger = Logger::start(&mut room, &setup);
    let mut child = shell("exec sleep 0.1");
    logger.watch(child.id());
    go(&mut child);
    let ids = logger.logged(2);
    child.wait().unwrap();
    let ready = logger.ready(ids[0]);
    assert_eq!(ready.state, State::Complete);
    assert_eq!(
        logger.table.lookup(ids[1]),
        Lookup::Lost(LostReason::NoRoom)
    );
    assert!(logger.table.refused() > 0);
    assert_eq!(logger.table.remove(ids[0]), Some(ready));
    assert_eq!(
        logger.table.lookup(ids[0]),
        Lookup::Lost(LostReason::Dropped)
    );
    let made = logger.logged(2).len();
    let mut child = shell("exec sleep 0.1");
    logger.watch(child.id());
    go(&mut child);
    let later = logger.logged(made + 1)[made];
    assert_eq!(logger.ready(later).pid, child.id());
    child.wait().unwrap();
}
