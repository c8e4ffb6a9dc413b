//! What is told of modules: their files, what these hold, and what is missing.

use std::mem;

use foldhash::HashMap;
use rawstack_format::record::Module;

use super::Builder;
use crate::debug_file::elf::PF_X;
use crate::debug_file::locate::ModuleFiles;
use crate::profile::Profile;
use crate::profile::tree::shown_path;
use crate::symbolized::{CodeRange, FoundFile, ModuleSymbols};
use crate::text::clean;

impl Builder {
    /// Begin with the modules of `profile`, in their order.
    pub(super) fn modules(&mut self, profile: &Profile, files: &[ModuleFiles]) {
        self.out.strings = mem::take(&mut self.symbols.strings);
        for (index, ((archive, module), files)) in
            profile.tree.modules().iter().zip(files).enumerate()
        {
            let path = shown_path(module);
            let found = files.files.iter().map(|(rule, file)| FoundFile {
                rule: rule.name(),
                path: clean(&file.path.to_string_lossy()).into_owned(),
                dwarf: file.has_dwarf(),
                symtab: file.has_symtab(),
            });
            let short = path
                .rsplit('/')
                .next()
                .filter(|name| !name.is_empty())
                .unwrap_or(&path)
                .to_owned();
            self.shown
                .push((self.out.strings.intern(&path), short, HashMap::default()));
            let missing = self
                .answered
                .get(index)
                .map(|module| module.missing.clone());
            let archive = profile.archives.get(*archive as usize);
            let recording = archive.and_then(|archive| archive.recording.as_ref());
            self.out.modules.push(ModuleSymbols {
                missing: missing.unwrap_or_default(),
                tried: files.tried.clone(),
                host: recording
                    .map(|recording| host(&recording.host))
                    .unwrap_or_default(),
                build_id: module.build_id.as_ref().map(ToString::to_string),
                hash: module.content_hash.map(hex),
                files: found.collect(),
                damaged: self
                    .answered
                    .get(index)
                    .is_some_and(|module| module.damaged),
                damage: self.answered.get(index).and_then(|module| module.damage),
                path,
                code: code(module),
                ..ModuleSymbols::default()
            });
        }
    }
}

fn hex(hash: [u8; 16]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parts of a module's file that hold code.
fn code(module: &Module) -> Vec<CodeRange> {
    let segments = module.segments.iter();
    let code = segments.filter(|segment| segment.flags & PF_X != 0 && segment.file_size > 0);
    code.map(|segment| CodeRange {
        offset: segment.offset.0,
        size: segment.file_size,
        vaddr: segment.vaddr,
    })
    .collect()
}

/// Operating system and kernel release in the facts of a host.
fn host(facts: &[(String, String)]) -> (String, String) {
    let of = |wanted: &str| {
        let found = facts.iter().find(|(name, _)| name == wanted);
        found.map_or_else(String::new, |(_, value)| clean(value).into_owned())
    };
    (of("os"), of("kernel_release"))
}
