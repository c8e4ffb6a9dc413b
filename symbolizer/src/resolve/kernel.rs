//! Kernel frames: recorded kallsyms for the kernel and its modules, vmlinux where its debug information is at hand.

use std::collections::BTreeMap;

use rawstack_format::id::FileOffset;
use rawstack_format::record::{KernelModule, KernelSymbol, Module, ModuleKind};

use super::cached::ElfResolver;
use super::file_offset::Svma;
use super::module::{ModuleAnswer, ModuleAnswers};
use super::reason::UnresolvedReason;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::elf::PF_X;
use crate::debug_file::locate::ModuleFiles;
use crate::debug_file::placed;
use rawstack_format::record::Segment;

/// Distance that kernel addresses may have from where offsets count from.
const REACH: u64 = 1 << 31;
/// Where the `.text` of a kernel module is put for looking at it: no section of it comes near 0 or the end.
const MODULE_TEXT: u64 = 1 << 46;

/// Recorded symbols of the kernel (under the empty name), of its modules and of BPF programs.
#[derive(Debug, Default)]
pub struct KernelSymbolTable {
    modules: BTreeMap<String, Vec<Row>>,
    /// For each kernel module its sections, with their distance from its `.text`.
    sections: BTreeMap<String, Vec<(String, u64)>>,
}

/// One symbol: distance from the module's start of text, negative below it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    offset: i64,
    /// Weak and local symbols come after others at one address.
    rank: u8,
    name: String,
}

impl KernelSymbolTable {
    /// Take over recorded rows.
    pub fn extend(&mut self, symbols: impl IntoIterator<Item = KernelSymbol>) {
        for symbol in symbols {
            let rank = match symbol.kind {
                b'T' => 0,
                b't' => 1,
                _ => 2,
            };
            let row = Row {
                offset: symbol.offset.cast_signed(),
                rank,
                name: symbol.name,
            };
            self.modules.entry(symbol.module).or_default().push(row);
        }
    }

    /// Take over where the sections of kernel modules were.
    pub fn add_modules(&mut self, modules: &[KernelModule]) {
        for module in modules {
            self.sections
                .insert(module.name.clone(), module.sections.clone());
        }
    }

    /// Sort; must follow the last [`extend`](Self::extend).
    pub fn finish(&mut self) {
        for rows in self.modules.values_mut() {
            rows.sort_unstable();
            rows.dedup_by_key(|row| row.offset);
        }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// The symbol of `module` at or before `offset`: kallsyms has no sizes, so each one ends where the next starts.
    fn find(&self, module: &str, offset: u64) -> Option<&str> {
        let rows = self.modules.get(module)?;
        let after = rows.partition_point(|row| row.offset <= offset.cast_signed());
        rows.get(after.checked_sub(1)?).map(|row| row.name.as_str())
    }

    /// The name that kallsyms gives a BPF program, `bpf_prog_TAG_NAME`.
    fn bpf_program(&self, program: &str) -> Option<&str> {
        let rows = self.modules.get("bpf")?;
        rows.iter()
            .map(|row| row.name.as_str())
            .find(|&name| name == program)
    }
}

/// Resolve `offsets`, sorted and without repetition, of the kernel, a kernel module or a BPF program.
pub(super) fn resolve_kernel(
    module: &Module,
    files: &ModuleFiles,
    table: &KernelSymbolTable,
    offsets: &[FileOffset],
    resolver: &ElfResolver<'_>,
) -> ModuleAnswers {
    let mut found = match module.kind {
        ModuleKind::Kernel => vmlinux(module, files, offsets, resolver),
        ModuleKind::KernelModule => kernel_module(module, files, table, offsets, resolver),
        _ => ModuleAnswers::default(),
    };
    found.answers.resize(offsets.len(), ModuleAnswer::default());
    let mut rows = BTreeMap::new();
    for (index, &offset) in offsets.iter().enumerate() {
        if found
            .answers
            .get(index)
            .is_some_and(|answer| answer.function.row().is_some())
        {
            continue;
        }
        let name = match module.kind {
            ModuleKind::BpfProgram => table
                .bpf_program(&module.path)
                .or(Some(module.path.as_str())),
            ModuleKind::KernelModule => table.find(kernel_module_name(&module.path), offset.0),
            _ => table.find("", offset.0),
        };
        let function = name.map(|name| {
            *rows
                .entry(name)
                .or_insert_with(|| found.name_row(name.as_bytes()))
        });
        let missing = if table.is_empty() {
            UnresolvedReason::NoKernelSymbols
        } else {
            UnresolvedReason::NoSymbol
        };
        if let Some(answer) = found.answers.get_mut(index) {
            answer.function = function.into();
            answer.reason = function.is_none().then_some(missing);
        }
    }
    found
}

/// Functions and lines from a vmlinux: its own `_stext` is where the recorded offsets count from, wherever the kernel was
/// put at its start.
fn vmlinux(
    module: &Module,
    files: &ModuleFiles,
    offsets: &[FileOffset],
    resolver: &ElfResolver<'_>,
) -> ModuleAnswers {
    let mut all = files.files.iter().map(|(_, file)| file);
    let start = all.find_map(|file| address_of(file, b"_stext"));
    let has_dwarf = files.dwarf().is_some() && resolver.options.dwarf;
    let Some(start) = start.filter(|_| has_dwarf) else {
        return ModuleAnswers::default();
    };
    resolver.resolve(&counted_from(module, start), files, offsets)
}

/// Functions and lines from the file of a kernel module: an object file, whose sections were put to the recorded places.
fn kernel_module(
    module: &Module,
    files: &ModuleFiles,
    table: &KernelSymbolTable,
    offsets: &[FileOffset],
    resolver: &ElfResolver<'_>,
) -> ModuleAnswers {
    let found = files.dwarf().filter(|_| resolver.options.dwarf);
    let Some(mut file) = found.and_then(|file| ElfFile::open(&file.path).ok()) else {
        return ModuleAnswers::default();
    };
    let sections = table.sections.get(kernel_module_name(&module.path));
    let address_of = |name: &str| {
        let recorded = sections.into_iter().flatten();
        let distance = recorded
            .filter(|(held, _)| held == name)
            .map(|row| row.1)
            .next();
        // Where nothing else is known, offsets count from the section that they are told from.
        let distance = distance.or_else(|| (name == ".text").then_some(0));
        Some(MODULE_TEXT.wrapping_add(distance?))
    };
    placed::place(&mut file, &address_of);
    let as_elf = counted_from(module, Svma(MODULE_TEXT));
    resolver.resolve(&as_elf, &ModuleFiles::given(file), offsets)
}

/// `module` as an ELF file whose offset 0 is at `start`.
fn counted_from(module: &Module, start: Svma) -> Module {
    // One segment with the bias does the translation. Offsets below the start wrap, so it begins in the middle.
    let segment = |offset: u64, vaddr: u64, file_size: u64| Segment {
        offset: FileOffset(offset),
        vaddr,
        file_size,
        flags: PF_X,
    };
    let segments = vec![
        segment(0, start.0, REACH),
        segment(0u64.wrapping_sub(REACH), start.0.wrapping_sub(REACH), REACH),
    ];
    Module {
        segments,
        ..module.clone()
    }
}

fn address_of(file: &ElfFile, name: &[u8]) -> Option<Svma> {
    let mut found = None;
    file.for_each_symbol(&mut |symbol| {
        if symbol.name == name {
            found = found.or(Some(Svma(symbol.svma)));
        }
    });
    found
}

/// `/proc/modules` and kallsyms name a module with underscores, files may have dashes.
fn kernel_module_name(path: &str) -> &str {
    path.trim_matches(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::ResolveOptions;

    fn symbol(offset: u64, kind: u8, module: &str, name: &str) -> KernelSymbol {
        KernelSymbol {
            offset,
            kind,
            module: module.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Check that symbols end where the next starts, that offsets below `_stext` count, and that modules are apart.
    #[test]
    fn kallsyms_lookup() {
        let mut table = KernelSymbolTable::default();
        let below = 0u64.wrapping_sub(0x100);
        table.extend([
            symbol(0x40, b't', "", "alias"),
            symbol(0x40, b'T', "", "do_idle"),
            symbol(below, b'T', "", "_text"),
        ]);
        table.extend([symbol(0x10, b't', "xfs", "xfs_read")]);
        table.finish();
        assert_eq!(table.find("", 0x41), Some("do_idle"));
        assert_eq!(table.find("", 0x3f), Some("_text"));
        assert_eq!(table.find("", below - 1), None);
        assert_eq!(table.find("xfs", 0x20), Some("xfs_read"));
        assert_eq!(table.find("ext4", 0x20), None);
    }

    /// Check that a BPF program is named by its kallsyms name and by its own where kallsyms has none.
    #[test]
    fn bpf_programs() {
        let module = Module {
            kind: ModuleKind::BpfProgram,
            path: "bpf_prog_12_tick".to_owned(),
            ..Module::default()
        };
        let resolver = ElfResolver {
            options: ResolveOptions {
                dwarf: true,
                origins: false,
            },
            cache: None,
        };
        let table = KernelSymbolTable::default();
        let found = resolve_kernel(
            &module,
            &ModuleFiles::default(),
            &table,
            &[FileOffset(4)],
            &resolver,
        );
        let function = found.functions[found.answers[0].function.row().unwrap() as usize];
        assert_eq!(found.names.get(function.name), b"bpf_prog_12_tick");
    }
}
