//! Kernel symbols, kernel modules and the vDSO.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter, Blobs};
use super::column::{pack, pack_deltas, unpack, unpack_as, unpack_deltas};
use super::{Map, checked_rows, row_count};
use crate::error::Invalid;
use crate::record::{KernelModule, KernelModules, KernelSymbol, KernelSymbols, Vdso};

/// Longest name of a kernel module, in bytes; the kernel's own limit is 55. A part repeats it for every symbol once it
/// is unpacked.
const MAX_MODULE_NAME: usize = 64;

/// Name of the padding before a function: half of a kernel's symbols are `__pfx_X`, 16 bytes before `X`.
const PADDING: &str = "__pfx_";

/// Kernel symbols chunk. Blobs: build ID, module names, symbol names.
#[derive(Archive, Serialize)]
pub(crate) struct KernelSymbolsRoot {
    pub(crate) text_size: u64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) modules: u32,
    pub(crate) rows: u32,
    /// 0.
    pub(crate) unused: u32,
    pub(crate) offset: Vec<u8>,
    pub(crate) kind: Vec<u8>,
    pub(crate) module: Vec<u8>,
    /// Where not 0: a symbol `__pfx_` + name, so many bytes before, alike in the rest, comes before this one.
    pub(crate) padding: Vec<u8>,
    pub(crate) blobs: Blobs,
}

/// Kernel modules chunk. Blobs: name and build ID of each module, then the names of all sections.
#[derive(Archive, Serialize)]
pub(crate) struct KernelModulesRoot {
    pub(crate) rows: u32,
    /// Rows of `section_offset`: all modules' sections one after the other.
    pub(crate) sections: u32,
    pub(crate) size: Vec<u8>,
    pub(crate) section_count: Vec<u8>,
    pub(crate) section_offset: Vec<u8>,
    pub(crate) blobs: Blobs,
}

/// vDSO chunk. Blobs: build ID, image.
#[derive(Archive, Serialize)]
pub(crate) struct VdsoRoot {
    pub(crate) class: u32,
    pub(crate) blobs: Blobs,
}

/// Distance in bytes at which `padding` stands before `symbol` when it is nothing but its padding; else 0.
pub(crate) fn padding_distance(padding: &KernelSymbol, symbol: &KernelSymbol) -> u8 {
    let named = padding
        .name
        .strip_prefix(PADDING)
        .is_some_and(|name| name == symbol.name);
    if named && padding.kind == symbol.kind && padding.module == symbol.module {
        u8::try_from(symbol.offset.wrapping_sub(padding.offset)).unwrap_or(0)
    } else {
        0
    }
}

pub(crate) fn encode_symbols(part: &KernelSymbols) -> Result<KernelSymbolsRoot, Invalid> {
    let mut rows: Vec<(&KernelSymbol, u8)> = Vec::with_capacity(part.symbols.len());
    for symbol in &part.symbols {
        let distance = rows.last().map_or(0, |&(last, own)| match own {
            0 => padding_distance(last, symbol),
            _ => 0,
        });
        if distance != 0 {
            rows.pop();
        }
        rows.push((symbol, distance));
    }
    let mut modules: Vec<&str> = Vec::new();
    let mut index: Map<&str, usize> = Map::default();
    let module_of: Vec<u64> = rows
        .iter()
        .map(|(symbol, _)| {
            *index.entry(&symbol.module).or_insert_with(|| {
                modules.push(&symbol.module);
                modules.len() - 1
            }) as u64
        })
        .collect();
    if modules.iter().any(|name| name.len() > MAX_MODULE_NAME) {
        return Err(Invalid::Value);
    }
    let mut blobs = BlobWriter::default();
    blobs.push_build_id(part.build_id.as_ref());
    modules.iter().for_each(|name| blobs.push(name.as_bytes()));
    rows.iter()
        .for_each(|(symbol, _)| blobs.push(symbol.name.as_bytes()));
    Ok(KernelSymbolsRoot {
        text_size: part.text_size,
        part: part.part,
        parts: part.parts,
        modules: row_count(&modules)?,
        rows: row_count(&rows)?,
        unused: 0,
        offset: pack_deltas(rows.iter().map(|(symbol, _)| symbol.offset)),
        kind: pack(rows.iter().map(|(symbol, _)| symbol.kind)),
        module: pack(module_of),
        padding: pack(rows.iter().map(|&(_, distance)| distance)),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode_symbols(a: &ArchivedKernelSymbolsRoot) -> Result<KernelSymbols, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let offsets = unpack_deltas(&a.offset, rows)?;
    let kinds: Vec<u8> = unpack_as(&a.kind, rows)?;
    let module_of: Vec<u32> = unpack_as(&a.module, rows)?;
    let paddings: Vec<u8> = unpack_as(&a.padding, rows)?;
    let mut blobs = BlobReader::new(&a.blobs)?;
    let build_id = blobs.build_id()?;
    let modules: Vec<String> = (0..checked_rows(a.modules.to_native())?)
        .map(|_| blobs.string())
        .collect::<Result<_, _>>()?;
    if modules.iter().any(|name| name.len() > MAX_MODULE_NAME) {
        return Err(Invalid::Value);
    }
    let mut symbols = Vec::with_capacity(rows);
    for row in 0..rows {
        let (offset, kind, name) = (offsets[row], kinds[row], blobs.string()?);
        let module = modules
            .get(module_of[row] as usize)
            .ok_or(Invalid::Reference)?
            .clone();
        if paddings[row] != 0 {
            let (offset, name) = (
                offset.wrapping_sub(paddings[row].into()),
                format!("{PADDING}{name}"),
            );
            symbols.push(KernelSymbol {
                offset,
                kind,
                module: module.clone(),
                name,
            });
        }
        symbols.push(KernelSymbol {
            offset,
            kind,
            module,
            name,
        });
    }
    blobs.finish()?;
    Ok(KernelSymbols {
        part: a.part.to_native(),
        parts: a.parts.to_native(),
        build_id,
        text_size: a.text_size.to_native(),
        symbols,
    })
}

pub(crate) fn encode_modules(all: &KernelModules) -> Result<KernelModulesRoot, Invalid> {
    let mut blobs = BlobWriter::default();
    for module in &all.modules {
        blobs.push(module.name.as_bytes());
        blobs.push_build_id(module.build_id.as_ref());
    }
    let sections: Vec<&(String, u64)> = all.modules.iter().flat_map(|m| &m.sections).collect();
    sections
        .iter()
        .for_each(|(name, _)| blobs.push(name.as_bytes()));
    Ok(KernelModulesRoot {
        rows: row_count(&all.modules)?,
        sections: row_count(&sections)?,
        size: pack(all.modules.iter().map(|m| m.size)),
        section_count: pack(all.modules.iter().map(|m| m.sections.len() as u64)),
        section_offset: pack_deltas(sections.iter().map(|&&(_, offset)| offset)),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode_modules(a: &ArchivedKernelModulesRoot) -> Result<KernelModules, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let sizes = unpack(&a.size, rows)?;
    let counts: Vec<u32> = unpack_as(&a.section_count, rows)?;
    let mut offsets =
        unpack_deltas(&a.section_offset, checked_rows(a.sections.to_native())?)?.into_iter();
    let mut blobs = BlobReader::new(&a.blobs)?;
    let mut modules = Vec::with_capacity(rows);
    for size in sizes {
        let (name, build_id) = (blobs.string()?, blobs.build_id()?);
        modules.push(KernelModule {
            name,
            build_id,
            size,
            sections: Vec::new(),
        });
    }
    for (module, count) in modules.iter_mut().zip(counts) {
        for _ in 0..count {
            module
                .sections
                .push((blobs.string()?, offsets.next().ok_or(Invalid::Rows)?));
        }
    }
    blobs.finish()?;
    if offsets.len() == 0 {
        Ok(KernelModules { modules })
    } else {
        Err(Invalid::Rows)
    }
}

pub(crate) fn encode_vdso(vdso: &Vdso) -> Result<VdsoRoot, Invalid> {
    let mut blobs = BlobWriter::default();
    blobs.push_build_id(vdso.build_id.as_ref());
    blobs.push(&vdso.image);
    Ok(VdsoRoot {
        class: vdso.class.into(),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode_vdso(a: &ArchivedVdsoRoot) -> Result<Vdso, Invalid> {
    let mut blobs = BlobReader::new(&a.blobs)?;
    let build_id = blobs.build_id()?;
    let image = blobs.bytes()?.to_vec();
    blobs.finish()?;
    let class = u8::try_from(a.class.to_native()).map_err(|_| Invalid::Value)?;
    Ok(Vdso {
        build_id,
        class,
        image,
    })
}
