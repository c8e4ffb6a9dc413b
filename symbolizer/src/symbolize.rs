//! Profile → profile with names: files are found, all distinct offsets resolved at once, and put back into frames.

mod made;
mod modules;
mod offsets;

use std::path::PathBuf;

use foldhash::HashMap;
use made::wanted_functions;
use offsets::{user_offsets, wanted_offsets};
use rawstack_format::id::FileOffset;
use rawstack_format::record::{ModuleKind, State};

use crate::debug_file::elf::ElfFile;
use crate::debug_file::identity::is_vdso_of;
use crate::debug_file::locate::{FoundBy, Locator, ModuleFiles};
use crate::debug_file::mmap::FileBytes;
use crate::jit::JitSymbolId;
use crate::profile::tree::{Jit, TreeFrame};
use crate::profile::{ModuleId, Profile, ThreadFacts};
use crate::resolve::file_offset::lookup_offset;
use crate::resolve::trampoline::Trampolines;
use crate::resolve::{
    Answer, Answered, JitQuery, KernelSymbolTable, NamedFrame, Origin, Place, Query, Symbolizer,
    Symbols, UnresolvedReason,
};
use crate::symbolized::{CodePlace, ModuleSymbols, SymbolizedFrame, SymbolizedProfile};
use crate::text::{StringId, clean};

/// What stands for the module of a frame that belongs to none.
const UNKNOWN: &str = "[unknown]";

/// Called with what is done (`false`: files of a module found, `true`: a module resolved).
pub type Progress<'p> = dyn Fn(bool) + Sync + 'p;

/// Give `profile` names.
pub fn symbolize(
    mut profile: Profile,
    locator: &Locator,
    symbolizer: &Symbolizer,
    inlines: bool,
    progress: &Progress<'_>,
) -> SymbolizedProfile {
    let mut builder = look_up(&mut profile, locator, symbolizer, inlines, progress);
    builder.markers();
    builder.finish(profile)
}

/// For each module of `profile`, in the order of its tree, how many distinct frames have no name here.
pub fn nameless_frames(
    profile: &mut Profile,
    locator: &Locator,
    symbolizer: &Symbolizer,
    progress: &Progress<'_>,
) -> Vec<u64> {
    let named = look_up(profile, locator, symbolizer, false, progress).out;
    let of_tree = named.modules.iter().take(profile.tree.modules().len());
    of_tree.map(ModuleSymbols::nameless).collect()
}

/// Find what each frame of `profile` is called.
fn look_up(
    profile: &mut Profile,
    locator: &Locator,
    symbolizer: &Symbolizer,
    inlines: bool,
    progress: &Progress<'_>,
) -> Builder {
    let modules = profile.tree.modules_alone();
    let mut files = symbolizer.locate(locator, &modules, &|| progress(false));
    add_vdsos(profile, &mut files);
    let trampolines = Trampolines::find(&modules, &files, &user_offsets(profile));
    profile.tree.mark_interrupted(&|frame: &TreeFrame| {
        !frame.kernel && trampolines.has(frame.module.index(), frame.offset)
    });
    let offsets = wanted_offsets(profile);
    let empty = KernelSymbolTable::default();
    let kernel = |archive: u32| profile.kernels.get(archive as usize).unwrap_or(&empty);
    let queries = profile.tree.modules().iter().zip(&files).zip(&offsets);
    let queries: Vec<Query<'_>> = queries
        .map(|(((archive, module), files), offsets)| Query {
            module,
            files,
            offsets,
            kernel: kernel(*archive),
        })
        .collect();
    let wanted = wanted_functions(profile);
    let jit_query = JitQuery {
        table: &profile.jit,
        wanted: &wanted,
    };
    let (symbols, answered, jit) = symbolizer.resolve_all(&queries, &jit_query, &|| progress(true));
    let mut builder = Builder {
        symbols,
        answered,
        offsets,
        jit: wanted.into_iter().zip(jit).collect(),
        inlines,
        origins: symbolizer.tells_origins(),
        ..Builder::default()
    };
    builder.modules(profile, &files);
    builder.frames(profile);
    builder
}

/// Put `profile` into the form of one with names, without looking for any: each frame is its module and offset.
pub fn leave_raw(profile: Profile) -> SymbolizedProfile {
    let files: Vec<ModuleFiles> = profile
        .tree
        .modules()
        .iter()
        .map(|_| ModuleFiles::default())
        .collect();
    let mut builder = Builder {
        raw: true,
        ..Builder::default()
    };
    builder.modules(&profile, &files);
    builder.frames(&profile);
    builder.markers();
    builder.finish(profile)
}

/// The vDSO has no file: its image comes with the archive.
fn add_vdsos(profile: &Profile, files: &mut [ModuleFiles]) {
    for ((archive, module), files) in profile.tree.modules().iter().zip(files) {
        if module.kind != ModuleKind::Vdso {
            continue;
        }
        let of_archive = profile
            .vdsos
            .iter()
            .filter(|(number, _)| number == archive)
            .map(|(_, vdso)| vdso);
        if let Some(vdso) = of_archive.into_iter().find(|vdso| is_vdso_of(vdso, module)) {
            let name = PathBuf::from("[vdso]");
            if let Ok(image) = ElfFile::parse(&name, FileBytes::from(vdso.image.clone())) {
                files.files.push((FoundBy::Given, image));
            }
        }
    }
}

/// Puts answers back into frames.
#[derive(Default)]
struct Builder {
    symbols: Symbols,
    answered: Vec<Answered>,
    offsets: Vec<Vec<FileOffset>>,
    jit: Vec<((JitSymbolId, u64), Answer)>,
    inlines: bool,
    /// Functions of one name are told apart.
    origins: bool,
    /// Nothing was looked for.
    raw: bool,
    out: SymbolizedProfile,
    /// Path, short name and reasons of each module.
    shown: Vec<(StringId, String, HashMap<UnresolvedReason, u64>)>,
    /// Frames in code that processes made, by archive and process.
    made: HashMap<(u32, u32), u64>,
    /// Frames that belong to no module, by reason.
    homeless: HashMap<UnresolvedReason, u64>,
    index: HashMap<SymbolizedFrame, u32>,
}

impl Builder {
    fn frames(&mut self, profile: &Profile) {
        for frame in profile.tree.frames() {
            let chain = match (frame.mark, frame.jit) {
                (Some(mark), _) => vec![self.marker(mark.text())],
                (None, Jit::No) => self.chain(frame),
                (None, Jit::Anywhere) => Vec::new(),
                (None, Jit::At(_)) => vec![self.made(frame, &profile.jit)],
            };
            if self.origins {
                self.add_origins(frame);
            }
            self.out.chains.push(chain);
            let address = if frame.address.0 == 0 {
                frame.offset.0
            } else {
                frame.address.0
            };
            self.out.addresses.push(address);
            let in_file = frame.jit == Jit::No && frame.module != ModuleId::NONE;
            self.out.places.push(CodePlace {
                module: in_file.then_some(frame.module.0),
                offset: lookup_offset(frame.offset, frame.kind).0,
            });
        }
        let sorted = |reasons: &HashMap<UnresolvedReason, u64>| {
            let mut rows: Vec<_> = reasons
                .iter()
                .map(|(&reason, &count)| (reason, count))
                .collect();
            rows.sort_unstable();
            rows
        };
        for (module, (_, _, reasons)) in self.out.modules.iter_mut().zip(&self.shown) {
            module.unresolved = sorted(reasons);
        }
        self.jit_modules(&profile.jit);
        if !self.homeless.is_empty() {
            self.out.modules.push(ModuleSymbols {
                path: UNKNOWN.to_owned(),
                frames: self.homeless.values().sum(),
                unresolved: sorted(&self.homeless),
                ..ModuleSymbols::default()
            });
        }
    }

    /// The frames with names at one code address, innermost first.
    fn chain(&mut self, frame: &TreeFrame) -> Vec<u32> {
        let answer = self.answer(frame);
        let module = self
            .shown
            .get(frame.module.index())
            .map(|(path, _, _)| *path);
        if let Some(module) = self.out.modules.get_mut(frame.module.index()) {
            module.frames += 1;
        }
        let base = SymbolizedFrame {
            name: StringId::NONE,
            module: module.unwrap_or_default(),
            place: Place::default(),
            inlined: false,
            kernel: frame.kernel,
            reason: None,
        };
        let frames = self.named_frames(&answer).map(|named| SymbolizedFrame {
            name: named.name,
            place: named.place,
            inlined: named.inlined,
            ..base
        });
        let frames: Vec<SymbolizedFrame> = frames.collect();
        if let []
        | [
            SymbolizedFrame {
                name: StringId::NONE,
                inlined: false,
                ..
            },
        ] = frames[..]
        {
            let place = frames.first().map_or(base.place, |frame| frame.place);
            let reason = match answer {
                Ok(answer) => answer.reason.unwrap_or(UnresolvedReason::NoSymbol),
                Err(reason) => reason,
            };
            let offset = start_of_unnamed(frame, &answer).unwrap_or(frame.offset);
            return vec![self.unresolved(frame, offset, SymbolizedFrame { place, ..base }, reason)];
        }
        frames.into_iter().map(|named| self.intern(named)).collect()
    }

    /// The frames at a code address that are shown, innermost first.
    fn named_frames<'s>(
        &'s self,
        answer: &Result<Answer, UnresolvedReason>,
    ) -> impl Iterator<Item = NamedFrame> + use<'s> {
        let frames = answer.ok().map(|answer| self.symbols.frames(&answer));
        let frames = frames.into_iter().flatten();
        frames.filter(|named| self.inlines || !named.inlined)
    }

    /// Say which functions of their names the frames at the next code address are of.
    fn add_origins(&mut self, frame: &TreeFrame) {
        let origins: Vec<Origin> = match (frame.mark, frame.jit) {
            (None, Jit::No) => {
                let frames = self.named_frames(&self.answer(frame));
                frames.map(|named| named.origin).collect()
            }
            _ => Vec::new(),
        };
        self.out.origins.push(origins);
    }

    fn answer(&self, frame: &TreeFrame) -> Result<Answer, UnresolvedReason> {
        if frame.lost {
            return Err(UnresolvedReason::LostTable);
        }
        if self.raw {
            return Err(UnresolvedReason::NotAsked);
        }
        let wanted = lookup_offset(frame.offset, frame.kind);
        let place = self
            .offsets
            .get(frame.module.index())
            .ok_or(UnresolvedReason::NoModule)?
            .binary_search(&wanted);
        let answers = self
            .answered
            .get(frame.module.index())
            .map(|module| &module.answers);
        let answer = place.ok().and_then(|place| answers?.get(place)).copied();
        answer.ok_or(UnresolvedReason::LostTable)
    }

    /// A frame without a name shows its module, where there is one, and `offset`.
    fn unresolved(
        &mut self,
        frame: &TreeFrame,
        offset: FileOffset,
        base: SymbolizedFrame,
        reason: UnresolvedReason,
    ) -> u32 {
        let name = match self.shown.get_mut(frame.module.index()) {
            Some((_, short, reasons)) => {
                *reasons.entry(reason).or_default() += 1;
                format!("{short}+{:#x}", offset.0)
            }
            None => {
                *self.homeless.entry(reason).or_default() += 1;
                // The address of a process that is gone means nothing, and would make a row of its own each time.
                if frame.lost { "[lost]" } else { UNKNOWN }.to_owned()
            }
        };
        let module = match base.module {
            StringId::NONE => self.out.strings.intern(UNKNOWN),
            module => module,
        };
        let name = self.out.strings.intern(&name);
        self.intern(SymbolizedFrame {
            name,
            module,
            reason: Some(reason),
            ..base
        })
    }

    fn intern(&mut self, mut frame: SymbolizedFrame) -> u32 {
        if self.out.strings.get(frame.name).is_empty() {
            frame.name = self.out.strings.intern("[unnamed]");
        }
        let next = u32::try_from(self.out.named.len()).unwrap_or(u32::MAX);
        let id = *self.index.entry(frame).or_insert(next);
        if id == next {
            self.out.named.push(frame);
        }
        id
    }

    /// Frames that say why a stack is not whole, and that there is none.
    fn markers(&mut self) {
        let texts = [
            (State::Truncated, "[truncated]"),
            (State::Faulted, "[user memory not there]"),
            (State::Exited, "[exited before return]"),
            (State::Execed, "[executed another program]"),
            (State::ScheduleFailed, "[seen from the tick]"),
            (State::Dropped, "[user half lost]"),
            (State::Pending, "[still in the kernel]"),
        ];
        for (state, text) in texts {
            let marker = self.marker(text);
            self.out.markers.insert(state, marker);
        }
        self.out.empty = self.marker("[no stack]");
    }

    fn marker(&mut self, text: &str) -> u32 {
        let name = self.out.strings.intern(text);
        let module = self.out.strings.intern("[rawstack]");
        let place = Place::default();
        self.intern(SymbolizedFrame {
            name,
            module,
            place,
            inlined: false,
            kernel: false,
            reason: None,
        })
    }

    fn finish(self, profile: Profile) -> SymbolizedProfile {
        let mut out = self.out;
        out.raw = self.raw;
        out.nodes = profile.tree.nodes().to_vec();
        out.archives = profile.archives;
        out.threads = profile.facts.threads().iter().map(cleaned).collect();
        out.events = profile.events;
        for event in &mut out.events {
            event.name = clean(&event.name).into_owned();
            event.unit = clean(&event.unit).into_owned();
        }
        out.rows = profile.rows;
        out
    }
}

fn cleaned(thread: &ThreadFacts) -> ThreadFacts {
    let safe = |text: &str| clean(text).into_owned();
    let (comm, process_comm, cgroup) = (
        safe(&thread.comm),
        safe(&thread.process_comm),
        safe(&thread.cgroup),
    );
    ThreadFacts {
        comm,
        process_comm,
        cgroup,
        ..*thread
    }
}

/// Where the function of a frame begins that has no name: all frames in it are one function.
fn start_of_unnamed(
    frame: &TreeFrame,
    answer: &Result<Answer, UnresolvedReason>,
) -> Option<FileOffset> {
    let distance = answer.ok()?.bytes_into_unnamed()?;
    let looked_up = lookup_offset(frame.offset, frame.kind);
    looked_up.0.checked_sub(distance).map(FileOffset)
}
