//! What an archive says, as plain owned rows: the types that writers fill and readers get. Knows nothing of bytes.
//!
//! Times are `CLOCK_MONOTONIC` nanoseconds of the recorded host unless a field says wall.
//!
//! **Epochs.** Table indices ([`ModuleIndex`], [`FrameIndex`], [`StackIndex`]) count from 0 within an *epoch*. A new
//! epoch starts when the recorder's tables are full or after [`EPOCH_CHUNKS`] batches; then every table starts empty
//! and each row is written again when it is next used. So a reader holds one epoch's tables, a writer's memory is
//! bounded, and a damaged chunk costs names until the end of its epoch at most. Each batch carries the index of the
//! first row it adds to each table: a gap shows as a gap and shifts nothing.

use crate::copies::StackCopies;
use crate::damage::Damage;
use crate::id::{Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};

/// Batches after which a writer starts a new epoch.
pub const EPOCH_CHUNKS: u32 = 64;

/// One chunk's content.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// What was recorded, how and where. Repeated at the start of each epoch.
    Recording(Recording),
    /// A part of the kernel's text symbols.
    KernelSymbols(KernelSymbols),
    /// Loaded kernel modules with their section addresses.
    KernelModules(KernelModules),
    /// The vDSO's ELF image.
    Vdso(Vdso),
    /// Tables and samples: the bulk of an archive.
    Batch(Batch),
    /// A piece of a JIT symbol source (perf map or jitdump) as it was at one time.
    JitMap(JitMap),
    /// Repetitions of the command and their declared work.
    Runs(Vec<Run>),
    /// Copied memory and registers of user halves, to be unwound offline. They stand before the batch with the rows that
    /// they belong to.
    StackCopies(StackCopies),
    /// The end of the recording with the totals. Missing when the recorder was killed.
    End(End),
    /// What is to be said of the archive that a part of a merged one was: the part's last chunk.
    Part(Part),
}

/// When the user half of a stack is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// On the task's return to user space, page faults allowed.
    #[default]
    Deferred = 0,
    /// At the tick itself, from what is in memory.
    Immediate = 1,
    /// No user stacks.
    Off = 2,
}

/// The recording as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Epoch that starts behind this chunk.
    pub epoch: u32,
    /// When user stacks were taken.
    pub mode: Mode,
    /// Why that mode ran, for people.
    pub mode_reason: String,
    /// Start, monotonic clock.
    pub start_ns: u64,
    /// Start, wall clock, since 1970-01-01 UTC.
    pub start_wall_ns: u64,
    /// Program that wrote the archive, with version.
    pub writer: String,
    /// Events; a sample's `event` is an index here.
    pub events: Vec<Event>,
    /// Options in force: name without dashes, value.
    pub options: Vec<(String, String)>,
    /// Facts of the host (`hostname`, `kernel_release`, `kernel_build_id`, `machine`, `cpus`, `page_size`, `boot_id`, …).
    pub host: Vec<(String, String)>,
    /// Labels given by the user.
    pub labels: Vec<(String, String)>,
}

/// One event that was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Name as on the command line: `cpu-clock`.
    pub name: String,
    /// Unit of a sample's weight: `ns`, `samples`, `bytes`, `events`.
    pub unit: String,
    /// Distance of two samples in units of the event, 0 where each event is one sample.
    pub period: u64,
    /// Asked frequency in Hz, 0 where a period was asked.
    pub frequency: u64,
}

/// Text symbols of the kernel (`/proc/kallsyms`), sorted by offset.
///
/// Either all of them, in `parts` parts; or, with `parts` 0, a selection: each symbol that covers a kernel frame, ahead
/// of the batch that has the frame and once in an epoch. Selections add up. The symbol of a frame is the last one at or
/// before its offset in both cases, since that one is always there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelSymbols {
    /// Part number from 0.
    pub part: u32,
    /// Number of parts; 0: a selection.
    pub parts: u32,
    /// Build ID of the kernel, where known.
    pub build_id: Option<BuildId>,
    /// Distance from `_stext` to `_etext`, in bytes.
    pub text_size: u64,
    /// The symbols.
    pub symbols: Vec<KernelSymbol>,
}

/// One text symbol of the kernel, of a kernel module or of a BPF program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSymbol {
    /// Distance from `_stext` (may wrap below it), or from the module's `.text`, or from the BPF program's start.
    pub offset: u64,
    /// Type letter of kallsyms (`t`, `T`, `w`, `W`).
    pub kind: u8,
    /// Kernel module's name, `bpf` for BPF programs, empty for the kernel itself.
    pub module: String,
    /// Name.
    pub name: String,
}

/// Loaded kernel modules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelModules {
    /// The modules.
    pub modules: Vec<KernelModule>,
}

/// One loaded kernel module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelModule {
    /// Name as in `/proc/modules`.
    pub name: String,
    /// Build ID, where known.
    pub build_id: Option<BuildId>,
    /// Size of the text, in bytes.
    pub size: u64,
    /// Sections: name, distance from the module's `.text` (wraps below it).
    pub sections: Vec<(String, u64)>,
}

/// The vDSO of the recorded kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vdso {
    /// Its build ID.
    pub build_id: Option<BuildId>,
    /// ELF class of the processes that map it: 32 or 64.
    pub class: u8,
    /// The ELF image as mapped.
    pub image: Vec<u8>,
}

/// Rows that belong together: additions to the epoch's tables, samples, completions and drops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Epoch of every index in this batch.
    pub epoch: u32,
    /// Index of the first row of `modules`.
    pub first_module: u32,
    /// Index of the first row of `frames`.
    pub first_frame: u32,
    /// Index of the first row of `stacks`.
    pub first_stack: u32,
    /// Process facts, valid from `since_ns` on.
    pub processes: Vec<Process>,
    /// Thread facts, valid from `since_ns` on.
    pub threads: Vec<Thread>,
    /// Modules.
    pub modules: Vec<Module>,
    /// Mappings of processes with samples.
    pub mappings: Vec<Mapping>,
    /// Frames.
    pub frames: Vec<Frame>,
    /// Stack nodes: a prefix tree of stacks, root first.
    pub stacks: Vec<StackNode>,
    /// Samples in the order in which the kernel wrote them on each CPU.
    pub samples: Vec<Sample>,
    /// Outcomes of samples that were written as [`State::Pending`] in this or an earlier batch.
    pub completions: Vec<Completion>,
    /// Losses.
    pub drops: Vec<Drop>,
}

/// A process's facts from `since_ns` on, until the next row of the same pid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Process ID (thread group ID) in the recorder's namespace.
    pub pid: u32,
    /// Parent's process ID.
    pub parent: u32,
    /// Process ID in its own namespace, 0 where not known.
    pub namespace_pid: u32,
    /// Start, monotonic clock; 0 where not known.
    pub start_ns: u64,
    /// From when on this row holds.
    pub since_ns: u64,
    /// Name of the main thread.
    pub comm: String,
    /// Path in the unified (else the first) cgroup hierarchy.
    pub cgroup: String,
}

/// A thread's facts from `since_ns` on, until the next row of the same tid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Start, monotonic clock; 0 where not known.
    pub start_ns: u64,
    /// From when on this row holds.
    pub since_ns: u64,
    /// Name.
    pub comm: String,
}

/// What a module is, which says what its frames' offsets count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ModuleKind {
    /// ELF file: offsets are file offsets.
    #[default]
    Elf = 0,
    /// The kernel: offsets from `_stext`.
    Kernel = 1,
    /// Kernel module: offsets from its `.text` section.
    KernelModule = 2,
    /// JIT-compiled BPF program: offsets from its first instruction.
    BpfProgram = 3,
    /// The vDSO: offsets into its ELF image.
    Vdso = 4,
    /// Executable memory without a file (JIT): the offset is the address itself.
    Anonymous = 5,
}

/// A module: what code came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// What it is.
    pub kind: ModuleKind,
    /// ELF class, 32 or 64; 0 where not known.
    pub class: u8,
    /// ELF machine (`e_machine`); 0 where not known.
    pub machine: u16,
    /// Page size of the host, in bytes: mappings start at its multiples.
    pub page_size: u32,
    /// Build ID, where there is one.
    pub build_id: Option<BuildId>,
    /// First 16 bytes of SHA-256 over the file's first 4096 bytes, its last 4096 and its length as a big-endian `u64`
    /// (`process.executable.build_id.htlhash` of OpenTelemetry); where there is no build ID.
    pub content_hash: Option<[u8; 16]>,
    /// Path as first seen, without `" (deleted)"`; the name for other kinds.
    pub path: String,
    /// PT_LOAD segments that hold code, in file order; empty where the file could not be read.
    pub segments: Vec<Segment>,
}

/// One PT_LOAD segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// `p_offset`.
    pub offset: FileOffset,
    /// `p_vaddr`.
    pub vaddr: u64,
    /// `p_filesz`.
    pub file_size: u64,
    /// `p_flags`.
    pub flags: u32,
}

/// An executable mapping of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapping {
    /// Process.
    pub pid: u32,
    /// First address.
    pub start: Addr,
    /// Address behind the last.
    pub end: Addr,
    /// File offset of `start`.
    pub offset: FileOffset,
    /// `PROT_*` bits.
    pub protection: u32,
    /// Device, major number; 0 where not known.
    pub device_major: u32,
    /// Device, minor number.
    pub device_minor: u32,
    /// Inode; 0 where not known.
    pub inode: u64,
    /// When it was made, and not before its program began; 0 for one older than the recording. Of mappings that
    /// overlap the later one counts.
    pub since_ns: u64,
    /// Path as the kernel gives it, with `" (deleted)"`.
    pub path: String,
    /// Module.
    pub module: ModuleIndex,
}

/// What a frame's address is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// The user-space instruction itself (frame 0, or one interrupted by a signal).
    #[default]
    UserLeaf = 0,
    /// A user-space return address: the call is before it.
    UserCaller = 1,
    /// The kernel instruction itself.
    KernelLeaf = 2,
    /// A return address in the kernel.
    KernelCaller = 3,
}

/// One code address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What the address is.
    pub kind: FrameKind,
    /// Raw user address; 0 for kernel frames, whose addresses an archive does not give away.
    pub address: Addr,
    /// Module, or none where nothing was mapped there.
    pub module: ModuleIndex,
    /// Offset in the module (see [`ModuleKind`]); for a kernel frame without module the distance from `_stext`.
    pub offset: FileOffset,
}

/// A node of the prefix tree of stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// Node of the calling frame, none for an outermost frame. Smaller than the node's own index.
    pub parent: StackIndex,
    /// Frame.
    pub frame: FrameIndex,
}

/// How an ID ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Both halves whole; a kernel thread has no user half and is complete without.
    #[default]
    Complete = 0,
    /// A half is deeper than the limit; the frames next to the leaf are there.
    Truncated = 1,
    /// User memory truly not there, or replaced before it could be read; the frames up to there are.
    Faulted = 2,
    /// The task died before it returned to user space; user frames are what memory showed then.
    Exited = 3,
    /// The task executed another program before it returned; no user frames.
    Execed = 4,
    /// The return could not be hooked; user frames are what the tick itself could see.
    ScheduleFailed = 5,
    /// Lost, for the reason in a [`Drop`].
    Dropped = 6,
    /// Still blocked in the kernel when recording stopped; as a row of an earlier batch: outcome still to come.
    Pending = 7,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Complete,
        Self::Truncated,
        Self::Faulted,
        Self::Exited,
        Self::Execed,
        Self::ScheduleFailed,
        Self::Dropped,
        Self::Pending,
    ];

    /// The state of a sample whose kernel half was cut, or not, when its user half ended in this one.
    pub fn with_kernel_cut(self, kernel_cut: bool) -> Self {
        if kernel_cut && self == Self::Complete {
            Self::Truncated
        } else {
            self
        }
    }

    /// Name in JSON and in text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Truncated => "truncated",
            Self::Faulted => "faulted",
            Self::Exited => "exited",
            Self::Execed => "execed",
            Self::ScheduleFailed => "schedule_failed",
            Self::Dropped => "dropped",
            Self::Pending => "pending",
        }
    }
}

/// One observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// ID.
    pub id: StackId,
    /// ID whose user half this sample shares: its own, or that of the first sample in the same kernel entry.
    pub owner: StackId,
    /// Time of the tick.
    pub time_ns: u64,
    /// CPU.
    pub cpu: u32,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Index into [`Recording::events`].
    pub event: u32,
    /// Run of the command, from 0.
    pub run: u32,
    /// Weight in the event's unit.
    pub weight: u64,
    /// State; [`State::Pending`] until a [`Completion`] of `owner` says otherwise.
    pub state: State,
    /// The kernel half was cut at the limit.
    pub kernel_cut: bool,
    /// Kernel half.
    pub kernel: StackIndex,
    /// User half; none while pending, but of a wait that had not ended when recording stopped, where it is known.
    pub user: StackIndex,
    /// Frames that the user half really had, where more than are here; else 0. `u32::MAX`: more than could be counted.
    pub user_depth: u32,
}

/// The outcome of samples written as [`State::Pending`]: holds for every row with this `owner`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// ID whose user half this is.
    pub owner: StackId,
    /// When it was taken.
    pub time_ns: u64,
    /// Outcome. A row whose kernel half was cut is `Truncated` even where this says `Complete`.
    pub state: State,
    /// User half.
    pub user: StackIndex,
    /// As [`Sample::user_depth`].
    pub user_depth: u32,
}

/// Why something is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// The ring buffer between kernel and recorder was full: samples.
    #[default]
    BufferFull = 0,
    /// The ring buffer or the scratch space was in use by the interrupted program: samples.
    Contended = 1,
    /// The recorder could not write, or ran into its memory bound: samples.
    Unwritten = 2,
    /// The user half was taken and then lost because the ring buffer was full: the rows are there, `Dropped`.
    UserHalf = 3,
    /// Side-band events (mappings, names) were lost; no sample is missing.
    SideBand = 4,
}

impl DropReason {
    /// Name in JSON and in text.
    pub fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer-full",
            Self::Contended => "contended",
            Self::Unwritten => "unwritten",
            Self::UserHalf => "user-half",
            Self::SideBand => "side-band",
        }
    }

    /// Whether each count is an ID that has no sample row.
    pub fn counts_ids(self) -> bool {
        matches!(self, Self::BufferFull | Self::Contended | Self::Unwritten)
    }
}

/// A loss, where it happened in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drop {
    /// Why.
    pub reason: DropReason,
    /// CPU, `u32::MAX` where it is of all.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// Time of the first.
    pub from_ns: u64,
    /// Time of the last.
    pub to_ns: u64,
}

/// A piece of a file that a process writes about code that it makes, as it was read at one time.
///
/// Pieces of one process and kind follow each other. One at position 0 begins another reading of the file from its
/// beginning; without bytes it says that the program has ended. Machine code in jitdumps is left out: zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JitMap {
    /// Process.
    pub pid: u32,
    /// 0: perf map text; 1: jitdump.
    pub kind: u8,
    /// When it was read.
    pub time_ns: u64,
    /// Position of `bytes` in the file.
    pub position: u64,
    /// Content.
    pub bytes: Vec<u8>,
}

/// One repetition of the command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Number from 0.
    pub run: u32,
    /// Start.
    pub start_ns: u64,
    /// End, 0 while it runs.
    pub end_ns: u64,
    /// Declared work, 0 where none was.
    pub work: f64,
    /// Exit status as from `wait`, -1 while it runs.
    pub exit: i32,
}

/// Totals of a recording that ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// End, monotonic clock.
    pub end_ns: u64,
    /// End, wall clock.
    pub end_wall_ns: u64,
    /// IDs reserved in the kernel.
    pub reserved: u64,
    /// IDs by state, in the order of [`State::ALL`]; their sum is `reserved`.
    pub states: [u64; 8],
    /// Exit status of the command as from `wait`, -1 without one.
    pub exit: i32,
}

/// The archive that a part of a merged archive was. Where this is missing, so is what may have stood before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its name when it was merged.
    pub name: String,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its version of the format: major, minor.
    pub format: (u16, u16),
    /// Whether it is the last part: where no chunk says so, parts are missing.
    pub is_last: bool,
    /// It was a part of a merged archive that ended with it, before its last part.
    pub is_cut: bool,
    /// What was damaged or missing in it. Places are its own.
    pub damage: Damage,
}
