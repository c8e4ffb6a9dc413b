//! ELF modules, resolved with the help of what earlier commands found out.
//!
//! An answer is kept for a module, the files that it came from and this program: when a better file appears, or one is
//! written anew, the key is another. What was damaged or not whole is not kept.

use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;

use super::module::{ModuleAnswers, ResolveOptions, resolve_elf};
use super::stored::{Stored, encode, join};
use crate::cache::{Cache, Key, KeyBuilder};
use crate::debug_file::elf::{ET_REL, ElfFile};
use crate::debug_file::identity::content_hash;
use crate::debug_file::locate::ModuleFiles;

/// How ELF modules are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElfResolver<'c> {
    pub(super) options: ResolveOptions,
    /// Earlier answers, where they may be used.
    pub(super) cache: Option<&'c Cache>,
}

impl ElfResolver<'_> {
    /// Resolve `offsets`, sorted and without repetition: those that are known from the cache, the others anew.
    pub(super) fn resolve(
        &self,
        module: &Module,
        files: &ModuleFiles,
        offsets: &[FileOffset],
    ) -> ModuleAnswers {
        let cache = self
            .cache
            .filter(|_| !files.files.is_empty() && !offsets.is_empty());
        let Some(cache) = cache else {
            return self.resolve_anew(module, files, offsets);
        };
        let key = self.key(module, files);
        let content = cache.read(&key);
        let stored = content
            .as_ref()
            .and_then(|content| Stored::parse(content.bytes()));
        let taken = stored.and_then(|stored| stored.take(offsets));
        let (there, known, missing) =
            taken.unwrap_or_else(|| (Vec::new(), ModuleAnswers::default(), offsets.to_vec()));
        if missing.is_empty() {
            return known;
        }
        let fresh = self.resolve_anew(module, files, &missing);
        if !fresh.damaged && fresh.missing.is_empty() {
            keep(cache, &key, stored.as_ref(), &missing, &fresh);
        }
        join((there, known), (&missing, &fresh)).1
    }

    /// Resolve, and let go of the memory that the files were read into.
    fn resolve_anew(
        &self,
        module: &Module,
        files: &ModuleFiles,
        offsets: &[FileOffset],
    ) -> ModuleAnswers {
        let found = resolve_elf(module, files, offsets, self.options);
        let files = files.files.iter().map(|(_, file)| file);
        files.for_each(|file| file.release(file.bytes()));
        found
    }

    /// Everything that an answer depends on besides the offset.
    fn key(&self, module: &Module, files: &ModuleFiles) -> Key {
        let mut key = KeyBuilder::new();
        key.add_number(u64::from(self.options.dwarf));
        key.add_number(u64::from(self.options.origins));
        key.add(module.build_id.as_ref().map_or(&[], |id| id.as_bytes()));
        key.add_number(u64::from(module.page_size));
        key.add_number(module.segments.len() as u64);
        for segment in &module.segments {
            let facts = [
                segment.offset.0,
                segment.vaddr,
                segment.file_size,
                u64::from(segment.flags),
            ];
            facts.into_iter().for_each(|fact| key.add_number(fact));
        }
        let files_of_its_own = files.files.iter().map(|(_, file)| file);
        let shared = files.alternate.iter().chain(&files.package);
        files_of_its_own
            .chain(shared)
            .for_each(|file| add_file(&mut key, file));
        key.finish()
    }
}

/// A file counts by its place, size and time; an image that is in no file by its content.
fn add_file(key: &mut KeyBuilder, file: &ElfFile) {
    let facts = file.path.metadata().ok();
    key.add_file(facts.as_ref());
    if facts.is_none() {
        key.add(&content_hash(file.bytes()));
    }
    // Sections of an object file are where they were put.
    if file.kind == ET_REL {
        let places = file.sections.iter().map(|section| section.svma);
        places.for_each(|svma| key.add_number(svma));
    }
}

/// Write an entry with the new answers beside those that were stored.
fn keep(
    cache: &Cache,
    key: &Key,
    stored: Option<&Stored<'_>>,
    missing: &[FileOffset],
    fresh: &ModuleAnswers,
) {
    let before = stored.and_then(|stored| stored.take(&stored.offsets()));
    let content = match before {
        Some((offsets, known, _)) => {
            let (offsets, all) = join((offsets, known), (missing, fresh));
            encode(&offsets, &all)
        }
        None => encode(missing, fresh),
    };
    cache.write(key, &content);
}
