//! Frames in code that processes made: named by the maps that the archive holds of each process.

use super::Builder;
use crate::jit::{JitFile, JitSymbolId, JitTable, Placed};
use crate::profile::Profile;
use crate::profile::tree::{Jit, TreeFrame};
use crate::resolve::file_offset::lookup_offset;
use crate::resolve::{Place, UnresolvedReason};
use crate::symbolized::{FoundFile, ModuleSymbols, SymbolizedFrame};
use crate::text::StringId;

/// What stands for the module of a frame in code that its process made.
const JIT: &str = "[jit]";

/// The function of a frame in code that its process made, and the address in it.
fn function_of(frame: &TreeFrame, jit: &JitTable) -> Result<(JitSymbolId, u64), UnresolvedReason> {
    let address = lookup_offset(frame.offset, frame.kind).0;
    let symbol = match frame.jit {
        Jit::At(Placed::In(symbol)) => symbol,
        Jit::At(Placed::Waits(space)) => match jit.waited(space, address) {
            Some(symbol) => symbol,
            None if jit.has_files(space) => return Err(UnresolvedReason::GeneratedCode),
            None => return Err(UnresolvedReason::NoJitMap),
        },
        Jit::No | Jit::Anywhere => return Err(UnresolvedReason::NoJitMap),
    };
    Ok((symbol, address))
}

/// Functions in code that processes made, with addresses in them, sorted and without repetition.
pub(super) fn wanted_functions(profile: &Profile) -> Vec<(JitSymbolId, u64)> {
    let frames = profile.tree.frames().iter();
    let made = frames.filter(|frame| frame.jit != Jit::No);
    let mut wanted: Vec<_> = made
        .filter_map(|frame| function_of(frame, &profile.jit).ok())
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

impl Builder {
    /// The frame in code that its process made.
    pub(super) fn made(&mut self, frame: &TreeFrame, jit: &JitTable) -> u32 {
        let base = SymbolizedFrame {
            name: StringId::NONE,
            module: self.out.strings.intern(JIT),
            place: Place::default(),
            inlined: false,
            kernel: false,
            reason: None,
        };
        let found = function_of(frame, jit).and_then(|function| {
            let place = self.jit.binary_search_by_key(&function, |(key, _)| *key);
            let answer = place.ok().and_then(|place| self.jit.get(place));
            let answer = answer.ok_or(UnresolvedReason::GeneratedCode)?.1;
            let named = self.symbols.frames(&answer).next();
            Ok((function.0, named.ok_or(UnresolvedReason::GeneratedCode)?))
        });
        match found {
            Ok((symbol, named)) => {
                let owner = jit.owner(symbol).unwrap_or_default();
                *self.made.entry(owner).or_default() += 1;
                self.intern(SymbolizedFrame {
                    name: named.name,
                    place: named.place,
                    ..base
                })
            }
            Err(reason) => {
                let shown = self
                    .shown
                    .get(frame.module.index())
                    .map(|(path, _, _)| *path);
                if let Some(module) = self.out.modules.get_mut(frame.module.index()) {
                    module.frames += 1;
                }
                let module = shown.unwrap_or_default();
                self.unresolved(
                    frame,
                    frame.offset,
                    SymbolizedFrame { module, ..base },
                    reason,
                )
            }
        }
    }

    /// What there is of each process that made code.
    pub(super) fn jit_modules(&mut self, jit: &JitTable) {
        let mut files = jit.files().into_iter().peekable();
        while let Some(first) = files.next() {
            let owner = (first.archive, first.pid);
            let mut of_process = vec![first];
            while let Some(more) = files.next_if(|file| (file.archive, file.pid) == owner) {
                of_process.push(more);
            }
            self.out.modules.push(ModuleSymbols {
                path: format!("{JIT} process {}", owner.1),
                frames: self.made.get(&owner).copied().unwrap_or(0),
                damaged: of_process.iter().any(|file| file.damaged),
                files: of_process.iter().map(found_map).collect(),
                ..ModuleSymbols::default()
            });
        }
    }
}

fn found_map(file: &JitFile) -> FoundFile {
    FoundFile {
        rule: "recorded",
        path: format!(
            "{} of {} functions, {} bytes",
            file.name(),
            file.functions,
            file.bytes
        ),
        dwarf: file.has_lines,
        symtab: true,
    }
}
