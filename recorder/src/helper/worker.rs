//! The process that reads what belongs to others. Whatever it touches may hang: then it is killed.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::wire::{
    Answer, FileFacts, FileRequest, Inbox, MAX_ANSWER, MAX_REQUEST, ProcessAnswer, Request, send,
};
use crate::copied_code;
use crate::elf::{ElfFacts, content_hash};
use crate::jit::{Files, MAX_HELD};
use crate::mapped_file;
use crate::privilege::{READING, keep_only};
use crate::proc_fs::{self, ProcessFacts};

/// Bytes of mappings after which the rest of the processes must be asked for again.
const ENOUGH_BYTES: usize = 1 << 20;
/// Memory that it may have, in bytes: far above what any answer takes.
const MAX_MEMORY: u64 = 1 << 30;

/// Answer until the recorder or the supervisor ends.
pub(super) fn run() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    keep_only(READING)?;
    let limit = |most| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::As, limit(MAX_MEMORY))?;
    setrlimit(Resource::Core, limit(0))?;
    setrlimit(Resource::Nofile, limit(MAX_HELD as u64 + 64))?;
    // No file can be written, whoever owns it.
    setrlimit(Resource::Fsize, limit(0))?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut inbox, mut files) = (Inbox::default(), Files::new());
    loop {
        match inbox.read(&socket, MAX_REQUEST) {
            Ok(Some((number, request))) => {
                send(&socket, number, &answer(request, &mut files), MAX_ANSWER)?;
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn answer(request: Request, files: &mut Files) -> Answer {
    match request {
        Request::Pids => Answer::Pids(proc_fs::pids()),
        Request::Processes(pids) => Answer::Processes(processes(&pids)),
        Request::Facts(pids) => Answer::Facts(
            pids.into_iter()
                .map(|pid| ProcessFacts::read(pid).ok())
                .collect(),
        ),
        Request::ThreadName { pid, tid } => Answer::ThreadName(proc_fs::thread_name(pid, tid)),
        Request::Maps(pid) => Answer::Maps(copied_code::maps(pid).ok()),
        Request::File(file) => Answer::File(file_facts(&file)),
        Request::JitFile(request) => Answer::JitFile(files.read(&request)),
        Request::ForgetJit(pid) => {
            files.forget(pid);
            Answer::Forgotten
        }
    }
}

/// Those asked for, in order, up to where it is enough for one answer.
fn processes(pids: &[u32]) -> Vec<Option<ProcessAnswer>> {
    let mut bytes = 0;
    let mut answers = Vec::new();
    for &pid in pids {
        let process = process(pid);
        bytes += process.as_ref().map_or(0, |process| process.maps.bytes());
        answers.push(process);
        if bytes >= ENOUGH_BYTES {
            break;
        }
    }
    answers
}

fn process(pid: u32) -> Option<ProcessAnswer> {
    let facts = ProcessFacts::read(pid).ok()?;
    let maps = copied_code::maps(pid).unwrap_or_default();
    Some(ProcessAnswer { facts, maps })
}

fn file_facts(request: &FileRequest) -> Option<FileFacts> {
    let file = mapped_file::open(request)?;
    let elf = ElfFacts::read(&file).unwrap_or_default();
    let has_id = request.build_id.is_some() || elf.build_id.is_some();
    let hash = if has_id {
        None
    } else {
        content_hash(&file).ok()
    };
    Some(FileFacts::new(elf, hash))
}
