//! The kernel's own addresses: image, modules and BPF programs of one boot; as offsets, since an archive gives no kernel
//! address away.

use std::collections::BTreeMap;

use foldhash::HashMap;
use rawstack_format::id::BuildId;
use rawstack_format::record::{
    KernelModule, KernelModules, KernelSymbol, KernelSymbols, Module, ModuleKind, Record,
};

use super::Refusal;

/// Symbols that are taken from a kallsyms file.
const MAX_SYMBOLS: usize = 4 << 20;

/// Symbols of a running kernel, as `/proc/kallsyms` has them.
#[derive(Debug, Default)]
pub(super) struct Kallsyms {
    /// Address, kind, name, module, which is empty for the kernel itself.
    rows: Vec<(u64, u8, String, String)>,
    names: HashMap<String, u64>,
}

impl Kallsyms {
    /// Read the text of such a file.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut read = Self::default();
        for line in text.lines().take(MAX_SYMBOLS) {
            let mut words = line.split_whitespace();
            let parts = (words.next(), words.next(), words.next());
            let (Some(address), Some(kind), Some(name)) = parts else {
                continue;
            };
            let (Ok(address), [kind]) = (u64::from_str_radix(address, 16), kind.as_bytes()) else {
                continue;
            };
            let module = words.next().unwrap_or_default().trim_matches(['[', ']']);
            if ["_stext", "_text", "_etext"].contains(&name) && module.is_empty() {
                read.names.insert(name.to_owned(), address);
            }
            if matches!(kind, b't' | b'T' | b'w' | b'W') {
                let row = (address, *kind, name.to_owned(), module.to_owned());
                read.rows.push(row);
            }
        }
        match read.names.get("_stext") {
            None => Err(Refusal::NoKallsyms),
            Some(0) => Err(Refusal::HiddenKallsyms),
            Some(_) => Ok(read),
        }
    }
}

/// One stretch of the kernel's memory.
#[derive(Clone, Debug)]
struct Stretch {
    end: u64,
    /// Where offsets count from.
    base: u64,
    module: Module,
}

/// Where a kernel address lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelPlace<'k> {
    pub(super) module: &'k Module,
    /// First address of the stretch: names the module within a recording.
    pub(super) start: u64,
    pub(super) offset: u64,
}

/// What is where.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    stretches: BTreeMap<u64, Stretch>,
    kallsyms: Option<Kallsyms>,
    /// Address of `_stext`, once known.
    stext: Option<u64>,
}

impl Kernel {
    /// A kernel whose symbols are known, or not.
    pub(super) fn new(kallsyms: Option<Kallsyms>) -> Self {
        Self {
            kallsyms,
            ..Self::default()
        }
    }

    /// Take perf's mapping of the image, whose name ends with the symbol that `reference` is the address of.
    pub(super) fn map_image(
        &mut self,
        (start, length): (u64, u64),
        (name, reference): (&str, u64),
        (build_id, is_x86): (Option<BuildId>, bool),
    ) -> Result<(), Refusal> {
        let symbol = name.rsplit(']').next().unwrap_or_default();
        if let Some(kallsyms) = &self.kallsyms {
            if kallsyms
                .names
                .get(symbol)
                .is_some_and(|&address| address != reference)
            {
                return Err(Refusal::OtherKallsyms);
            }
            self.stext = kallsyms.names.get("_stext").copied();
        } else if symbol == "_stext" || (symbol == "_text" && is_x86) {
            // On x86 both stand at the start of the image.
            self.stext = Some(reference);
        }
        let module = Module {
            kind: ModuleKind::Kernel,
            path: "[kernel]".to_owned(),
            // Without its start no offset means anything, and no file may be taken for it.
            build_id: build_id.filter(|_| self.stext.is_some()),
            ..Module::default()
        };
        let base = self.stext.unwrap_or(start);
        self.insert(start, length, base, module);
        Ok(())
    }

    /// Take the mapping of a kernel module, whose text is at its start.
    pub(super) fn map_module(
        &mut self,
        start: u64,
        length: u64,
        path: &str,
        build_id: Option<BuildId>,
    ) {
        let module = Module {
            kind: ModuleKind::KernelModule,
            path: module_name(path),
            build_id,
            ..Module::default()
        };
        self.insert(start, length, start, module);
    }

    /// Take a BPF program or a trampoline.
    pub(super) fn add_program(&mut self, start: u64, length: u64, name: &str) {
        let module = Module {
            kind: ModuleKind::BpfProgram,
            path: name.to_owned(),
            ..Module::default()
        };
        self.insert(start, length, start, module);
    }

    /// A BPF program is gone.
    pub(super) fn remove_program(&mut self, start: u64) {
        let is_program = |held: &Stretch| held.module.kind == ModuleKind::BpfProgram;
        if self.stretches.get(&start).is_some_and(is_program) {
            self.stretches.remove(&start);
        }
    }

    fn insert(&mut self, start: u64, length: u64, base: u64, module: Module) {
        let end = start.saturating_add(length);
        let stretch = Stretch { end, base, module };
        self.stretches.insert(start, stretch);
    }

    /// Where `address` lies.
    pub(super) fn find(&self, address: u64) -> Option<KernelPlace<'_>> {
        let mut before = self.stretches.range(..=address).rev().take(2);
        // Programs lie between others, and what they lie in may begin before them.
        let (start, stretch) = before.find(|(_, stretch)| address < stretch.end)?;
        Some(KernelPlace {
            module: &stretch.module,
            start: *start,
            offset: address.wrapping_sub(stretch.base),
        })
    }

    /// Whether kernel frames can be told apart by offsets.
    pub(super) fn has_start(&self) -> bool {
        self.stext.is_some()
    }

    /// Whether names of the kernel's functions go into the archive.
    pub(super) fn has_symbols(&self) -> bool {
        self.kallsyms.is_some()
    }

    /// What the archive says of the kernel: modules, and symbols where they are known.
    pub(super) fn records(&self, build_id: Option<&BuildId>) -> Vec<Record> {
        let modules = self
            .stretches
            .values()
            .filter(|stretch| stretch.module.kind == ModuleKind::KernelModule);
        let modules: Vec<KernelModule> = modules
            .map(|stretch| KernelModule {
                name: stretch.module.path.clone(),
                build_id: stretch.module.build_id.clone(),
                size: stretch.end.saturating_sub(stretch.base),
                sections: Vec::new(),
            })
            .collect();
        let mut records = self.symbols(build_id);
        if !modules.is_empty() {
            records.push(Record::KernelModules(KernelModules { modules }));
        }
        records
    }

    fn symbols(&self, build_id: Option<&BuildId>) -> Vec<Record> {
        let (Some(kallsyms), Some(stext)) = (&self.kallsyms, self.stext) else {
            return Vec::new();
        };
        let mut bases: HashMap<&str, u64> = HashMap::default();
        for stretch in self.stretches.values() {
            if stretch.module.kind == ModuleKind::KernelModule {
                bases.insert(&stretch.module.path, stretch.base);
            }
        }
        bases.insert("", stext);
        let symbol = |(address, kind, name, module): &(u64, u8, String, String)| {
            Some(KernelSymbol {
                offset: address.wrapping_sub(*bases.get(module.as_str())?),
                kind: *kind,
                module: module.clone(),
                name: name.clone(),
            })
        };
        let mut symbols: Vec<KernelSymbol> = kallsyms.rows.iter().filter_map(symbol).collect();
        symbols.sort_by(|a, b| {
            (&a.module, a.offset.cast_signed(), &a.name).cmp(&(
                &b.module,
                b.offset.cast_signed(),
                &b.name,
            ))
        });
        let end = kallsyms.names.get("_etext");
        let all = KernelSymbols {
            build_id: build_id.cloned(),
            text_size: end.map_or(0, |end| end.saturating_sub(stext)),
            symbols,
            ..KernelSymbols::default()
        };
        all.split().into_iter().map(Record::KernelSymbols).collect()
    }
}

/// Name of a kernel module as `/proc/modules` has it: `/lib/modules/…/snd-hda.ko.xz` and `[snd_hda]` are `snd_hda`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.trim_matches(['[', ']']);
    let name = name.split(".ko").next().unwrap_or(name);
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000200 T _stext\nffffffff81000300 t one\n\
        ffffffff82000000 T _etext\nffffffff81000400 D data\nffffffffc0000010 t probe\t[snd_hda]\n";

    /// Check that offsets count from `_stext` and from a module's text, and that data is no symbol.
    #[test]
    fn offsets() {
        let mut kernel = Kernel::new(Some(Kallsyms::parse(TEXT).unwrap()));
        let image = (0xffff_ffff_8100_0000, 0x100_0000);
        kernel
            .map_image(image, ("[kernel.kallsyms]_text", image.0), (None, false))
            .unwrap();
        kernel.map_module(
            0xffff_ffff_c000_0000,
            0x1000,
            "/lib/modules/6/snd-hda.ko.xz",
            None,
        );
        let found = kernel.find(0xffff_ffff_8100_0304).unwrap();
        assert_eq!(
            (found.module.path.as_str(), found.offset),
            ("[kernel]", 0x104)
        );
        let found = kernel.find(0xffff_ffff_c000_0014).unwrap();
        assert_eq!(
            (found.module.path.as_str(), found.offset),
            ("snd_hda", 0x14)
        );
        assert_eq!(kernel.find(0xffff_ffff_c000_1000), None);
        let records = kernel.records(None);
        let Record::KernelSymbols(symbols) = &records[0] else {
            panic!("no symbols")
        };
        let rows: Vec<_> = symbols
            .symbols
            .iter()
            .map(|row| (row.name.as_str(), row.offset))
            .collect();
        let below = 0u64.wrapping_sub(0x200);
        assert_eq!(
            rows,
            [
                ("_text", below),
                ("_stext", 0),
                ("one", 0x100),
                ("_etext", 0xff_fe00),
                ("probe", 0x10)
            ]
        );
    }

    /// Check that symbols of another boot, hidden ones and others' files are refused.
    #[test]
    fn refusals() {
        let mut kernel = Kernel::new(Some(Kallsyms::parse(TEXT).unwrap()));
        let moved = (0xffff_ffff_9100_0000, 0x100_0000);
        let refused = kernel.map_image(moved, ("[kernel.kallsyms]_text", moved.0), (None, true));
        assert_eq!(refused.unwrap_err(), Refusal::OtherKallsyms);
        assert_eq!(Kallsyms::parse("text").unwrap_err(), Refusal::NoKallsyms);
        let hidden = "0000000000000000 T _stext\n";
        assert_eq!(
            Kallsyms::parse(hidden).unwrap_err(),
            Refusal::HiddenKallsyms
        );
    }

    /// Check that without symbols the start of an image is only known where it is the same as what perf names.
    #[test]
    fn unknown_start() {
        let image = (0xffff_8000_8000_0000, 0x100_0000);
        let build_id = BuildId::new(&[1; 20]);
        for (name, is_x86, known) in [
            ("_text", true, true),
            ("_text", false, false),
            ("_stext", false, true),
        ] {
            let mut kernel = Kernel::default();
            kernel
                .map_image(image, (name, image.0), (build_id.clone(), is_x86))
                .unwrap();
            assert_eq!(kernel.has_start(), known);
            let found = kernel.find(image.0 + 4).unwrap();
            assert_eq!(found.module.build_id.is_some(), known);
        }
    }
}
