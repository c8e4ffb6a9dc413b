//! The finished profile: everything that is printed, with names. Knows no ELF, no DWARF and no archive.

use foldhash::HashMap;

pub use crate::debug_file::files::{Outcome, Tried};
use crate::origins::Origins;
use crate::profile::rows::{EventFacts, Row};
use crate::profile::tree::FrameId;
use crate::profile::{ModuleId, NodeId, Summary, ThreadFacts, ThreadId};
use crate::resolve::{Damage, MissingPieces, Place, UnresolvedReason};
use crate::text::{StringId, StringTable};
use rawstack_format::record::State;

/// One frame with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolizedFrame {
    /// Name of the function, or module and offset where it has none.
    pub name: StringId,
    /// Path of the module, or what stands for it.
    pub module: StringId,
    /// Place in the source.
    pub place: Place,
    /// Whether it is inlined into the next frame.
    pub inlined: bool,
    /// Whether it is in the kernel.
    pub kernel: bool,
    /// Why it has no name.
    pub reason: Option<UnresolvedReason>,
}

/// What was found for one module.
#[derive(Clone, Debug, Default)]
pub struct ModuleSymbols {
    /// Path, or what stands for it.
    pub path: String,
    /// Build ID, lower-case hexadecimal.
    pub build_id: Option<String>,
    /// Hash of the file's ends and length, hexadecimal, where there is no build ID.
    pub hash: Option<String>,
    /// Distinct frames.
    pub frames: u64,
    /// Distinct frames without a name, by reason.
    pub unresolved: Vec<(UnresolvedReason, u64)>,
    /// Files that were used: rule that found it, path, whether it has debug information, whether a symbol table.
    pub files: Vec<FoundFile>,
    /// Whether debug information was damaged, beyond the limits or given up.
    pub damaged: bool,
    /// What was wrong with it.
    pub damage: Option<Damage>,
    /// What the debug information refers to and is not there.
    pub missing: MissingPieces,
    /// Places that were looked at, in that order.
    pub tried: Vec<Tried>,
    /// Operating system and kernel release of the host that was recorded, where they are known.
    pub host: (String, String),
    /// Parts of the file that hold code.
    pub code: Vec<CodeRange>,
}

impl ModuleSymbols {
    /// Distinct frames without a name.
    pub fn nameless(&self) -> u64 {
        self.unresolved.iter().map(|(_, count)| count).sum()
    }

    /// Address of an offset as the file states it; the offset itself where no part with code holds it.
    pub fn vaddr(&self, offset: u64) -> u64 {
        // A part is mapped as whole pages; of two that share one the part that holds the offset itself goes first.
        let holds = |part: &&CodeRange, page: u64| {
            let end = part.offset.saturating_add(part.size);
            let end = end.checked_next_multiple_of(page).unwrap_or(end);
            offset >= part.offset - part.offset % page && offset < end
        };
        let exact = self.code.iter().find(|part| holds(part, 1));
        let part = exact.or_else(|| self.code.iter().find(|part| holds(part, 0x1000)));
        part.map_or(offset, |part| {
            part.vaddr.wrapping_add(offset.wrapping_sub(part.offset))
        })
    }
}

/// A part of a module's file that holds code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRange {
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file, in bytes.
    pub size: u64,
    /// Address as the file states it, before it is loaded anywhere.
    pub vaddr: u64,
}

/// A file that was found for a module.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Rule that found it.
    pub rule: &'static str,
    /// Where it is.
    pub path: String,
    /// Whether it holds debug information.
    pub dwarf: bool,
    /// Whether it holds the full symbol table.
    pub symtab: bool,
}

/// A profile with names.
#[derive(Debug, Default)]
pub struct SymbolizedProfile {
    /// Strings of the frames.
    pub strings: StringTable,
    /// Facts of the archives.
    pub archives: Vec<Summary>,
    /// Modules.
    pub modules: Vec<ModuleSymbols>,
    /// Threads.
    pub threads: Vec<ThreadFacts>,
    /// Events.
    pub events: Vec<EventFacts>,
    /// Samples, added up.
    pub rows: Vec<Row>,
    /// Distinct frames with names.
    pub(crate) named: Vec<SymbolizedFrame>,
    /// For each frame of the tree its frames with names, innermost first.
    pub(crate) chains: Vec<Vec<u32>>,
    /// For each frame of the tree which functions of their names they are of.
    pub(crate) origins: Origins,
    /// For each frame of the tree its address, where the tree keeps addresses; else its offset.
    pub(crate) addresses: Vec<u64>,
    /// For each frame of the tree where its code lies.
    pub(crate) places: Vec<CodePlace>,
    /// Prefix tree of stacks: parent and frame.
    pub(crate) nodes: Vec<(NodeId, FrameId)>,
    /// Frames that say why a stack ends.
    pub(crate) markers: HashMap<State, u32>,
    /// What stands for a stack without any frame.
    pub(crate) empty: u32,
    /// Names were not looked for.
    pub(crate) raw: bool,
}

/// A stack of a row: indices of frames, leaf first.
pub type Stack = Vec<u32>;

/// Where the code of a frame lies, without its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// Its module, an index into [`SymbolizedProfile::modules`]; none for what lies in no file.
    pub module: Option<u32>,
    /// Offset in the module's file, in the kernel from `_stext`; of a return address that of the call before it.
    pub offset: u64,
}

/// One frame of a stack with the code address that it stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Code address, an index into [`SymbolizedProfile::places`]; none for what says why a stack ends.
    pub place: Option<u32>,
    /// Names, an index into [`SymbolizedProfile::frames`].
    pub named: u32,
    /// Number of the code address in its stack: frames inlined into one another share it.
    pub level: u32,
    /// Number of the frame at its code address, counted from the innermost.
    pub position: u32,
}

impl SymbolizedProfile {
    /// A frame by index.
    pub fn frame(&self, index: u32) -> SymbolizedFrame {
        let unknown = SymbolizedFrame {
            name: StringId::NONE,
            module: StringId::NONE,
            place: Place::default(),
            inlined: false,
            kernel: false,
            reason: Some(UnresolvedReason::LostTable),
        };
        self.named.get(index as usize).copied().unwrap_or(unknown)
    }

    /// All distinct frames.
    pub fn frames(&self) -> &[SymbolizedFrame] {
        &self.named
    }

    /// Text of an ID.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// A thread.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadFacts> {
        self.threads.get(id.0 as usize)
    }

    /// Put the frames of a row into `stack`: kernel and user half as one, leaf first; what is cut says so.
    pub fn stack(&self, row: &Row, stack: &mut Stack) {
        self.halves(row.kernel, row.user, (row.state, row.kernel_cut), stack);
    }

    /// As [`stack`](Self::stack), from the halves themselves.
    pub fn halves(&self, kernel: NodeId, user: NodeId, end: (State, bool), stack: &mut Stack) {
        stack.clear();
        self.each_located(kernel, user, end, &mut |frame| stack.push(frame.named));
    }

    /// Whether names were not looked for.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// Which functions of their names the frames at each place are of, where the symbolizer was asked to tell.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// Where the code of all distinct frames lies.
    pub fn places(&self) -> &[CodePlace] {
        &self.places
    }

    /// Raw address of a frame, in the kernel its offset; 0 where there is none.
    pub fn address(&self, frame: &Located) -> u64 {
        frame.place.map_or(0, |place| self.raw_address(place))
    }

    /// As [`address`](Self::address), of a place.
    pub fn raw_address(&self, place: u32) -> u64 {
        let address = self.addresses.get(place as usize);
        address.copied().unwrap_or(0)
    }

    /// Frames with names at a place, innermost first.
    pub fn chain_at(&self, place: u32) -> &[u32] {
        let chain = self.chains.get(place as usize);
        chain.map(Vec::as_slice).unwrap_or_default()
    }

    /// Frames that are at no place: those that say why a stack ends, and that there is none.
    pub fn marks(&self) -> Vec<u32> {
        let mut marks: Vec<u32> = self.markers.values().copied().chain([self.empty]).collect();
        marks.sort_unstable();
        marks
    }

    /// Go through a stack, leaf first, with the code addresses of its frames.
    pub fn each_located(
        &self,
        kernel: NodeId,
        user: NodeId,
        (state, kernel_cut): (State, bool),
        each: &mut dyn FnMut(Located),
    ) {
        // A wait that had not ended with the recording can be whole all the same.
        let is_whole = state == State::Pending && self.nodes.get(user.index()).is_some();
        let marker = self.markers.get(&state).filter(|_| !is_whole).copied();
        let mut level = 0;
        let mut frames = self.half(kernel, &mut level, each);
        mark(marker.filter(|_| kernel_cut), &mut level, each);
        frames += self.half(user, &mut level, each);
        mark(marker.filter(|_| !kernel_cut), &mut level, each);
        if frames == 0 && marker.is_none() {
            mark(Some(self.empty), &mut level, each);
        }
    }

    fn half(&self, leaf: NodeId, level: &mut u32, each: &mut dyn FnMut(Located)) -> usize {
        let mut next = leaf;
        let mut count = 0;
        // Every node is met once at most, so a loop in the tree would end too.
        for _ in 0..self.nodes.len() {
            let Some(&(parent, frame)) = self.nodes.get(next.index()) else {
                break;
            };
            let chain = self.chains.get(frame.index()).into_iter().flatten();
            for (position, &named) in (0u32..).zip(chain) {
                each(Located {
                    place: Some(frame.0),
                    named,
                    level: *level,
                    position,
                });
                count += 1;
            }
            *level = level.saturating_add(1);
            next = parent;
        }
        count
    }

    /// Modules with frames that have no name, in the order of their IDs.
    pub fn unresolved(&self) -> impl Iterator<Item = (ModuleId, &ModuleSymbols)> {
        let modules = (0u32..)
            .zip(&self.modules)
            .map(|(id, module)| (ModuleId(id), module));
        modules.filter(|(_, module)| !module.unresolved.is_empty())
    }

    /// Unit in which rows are added up: the events' own where they share one, else samples.
    pub fn unit(&self) -> &str {
        let mut units = self
            .rows
            .iter()
            .filter_map(|row| self.events.get(row.event as usize))
            .map(|event| &event.unit);
        match units.next() {
            Some(first) if units.all(|unit| unit == first) => first,
            _ => "samples",
        }
    }

    /// What a row counts in [`unit`](Self::unit)s.
    pub fn weight(&self, row: &Row, unit: &str) -> u64 {
        let own = self
            .events
            .get(row.event as usize)
            .is_some_and(|event| event.unit == unit);
        if own { row.weight } else { row.samples }
    }
}

/// Give what says why a stack ends, at a level of its own.
fn mark(named: Option<u32>, level: &mut u32, each: &mut dyn FnMut(Located)) {
    let Some(named) = named else { return };
    each(Located {
        place: None,
        named,
        level: *level,
        position: 0,
    });
    *level = level.saturating_add(1);
}
