//! What perf says was mapped, in processes and in the kernel.

use std::io::Write;

use linux_perf_event_reader::{CpuMode, Mmap2FileId, Mmap2Record, MmapRecord};
use rawstack_format::id::{Addr, BuildId, FileOffset};
use rawstack_format::record::{Mapping, Module, ModuleKind};

use super::bytes::text;
use super::convert::{Converter, Failure, Taken, cut};

/// Bit of the protection: executable.
const PROT_EXEC: u32 = 4;
/// Page size where nothing says it.
const PAGE_SIZE: u32 = 4096;

impl<W: Write> Converter<'_, W> {
    pub(super) fn map(&mut self, map: &MmapRecord<'_>) -> Taken {
        let path = cut(&text(&map.path.as_slice()));
        let place = (map.address, map.length);
        if map.pid == -1 || map.cpu_mode == CpuMode::Kernel {
            return self.kernel_map(place, &path, map.page_offset, None);
        }
        let mapping = Mapping {
            pid: map.pid.cast_unsigned(),
            protection: if map.is_executable { PROT_EXEC } else { 0 },
            path,
            ..self.mapping(place, map.page_offset)
        };
        self.user_map(mapping, None);
        Ok(())
    }

    pub(super) fn map2(&mut self, map: &Mmap2Record<'_>) -> Taken {
        let path = cut(&text(&map.path.as_slice()));
        let place = (map.address, map.length);
        let build_id = match &map.file_id {
            Mmap2FileId::BuildId(bytes) => BuildId::new(bytes),
            Mmap2FileId::InodeAndVersion(_) => None,
        };
        if map.pid == -1 || map.cpu_mode == CpuMode::Kernel {
            return self.kernel_map(place, &path, map.page_offset, build_id);
        }
        let mut mapping = Mapping {
            pid: map.pid.cast_unsigned(),
            protection: map.protection,
            path,
            ..self.mapping(place, map.page_offset)
        };
        if let Mmap2FileId::InodeAndVersion(file) = &map.file_id {
            (mapping.device_major, mapping.device_minor) = (file.major, file.minor);
            mapping.inode = file.inode;
        }
        self.user_map(mapping, build_id);
        Ok(())
    }

    fn mapping(&self, (start, length): (u64, u64), offset: u64) -> Mapping {
        Mapping {
            start: Addr(start),
            end: Addr(start.saturating_add(length)),
            offset: FileOffset(offset),
            since_ns: self.time,
            ..Mapping::default()
        }
    }

    fn kernel_map(
        &mut self,
        place: (u64, u64),
        path: &str,
        reference: u64,
        build_id: Option<BuildId>,
    ) -> Taken {
        let is_x86 = self
            .facts
            .arch
            .as_deref()
            .is_some_and(|arch| arch.contains("86"));
        if path.starts_with("[kernel.") || path.starts_with("[guest.kernel.") {
            if path.starts_with("[kernel.") {
                let build_id = build_id.or_else(|| self.facts.kernel_build_id().cloned());
                let reference = (path, reference);
                let image = self.kernel.map_image(place, reference, (build_id, is_x86));
                image.map_err(Failure::Refused)?;
            }
            return Ok(());
        }
        let build_id = build_id.or_else(|| self.facts.build_id(path, true).cloned());
        self.kernel.map_module(place.0, place.1, path, build_id);
        Ok(())
    }

    fn user_map(&mut self, mapping: Mapping, build_id: Option<BuildId>) {
        let place = (mapping.start.0, mapping.end.0);
        let (pid, offset) = (mapping.pid, mapping.offset.0);
        if mapping.protection & PROT_EXEC == 0 {
            return self.spaces.map(pid, place, offset, None);
        }
        let path = mapping.path.trim_end_matches(" (deleted)").to_owned();
        let build_id = build_id.or_else(|| self.facts.build_id(&path, false).cloned());
        let kind = module_kind(&path);
        let module = Module {
            kind,
            page_size: PAGE_SIZE,
            build_id: build_id.filter(|_| kind != ModuleKind::Anonymous),
            path: if kind == ModuleKind::Anonymous {
                String::new()
            } else {
                path
            },
            ..Module::default()
        };
        let module = self.modules.number(&module, self.code);
        let number = u32::try_from(self.mappings.len()).unwrap_or(u32::MAX);
        self.mappings.push((module, mapping));
        self.spaces.map(pid, place, offset, Some(number));
    }
}

/// What code a mapping of this name holds.
fn module_kind(path: &str) -> ModuleKind {
    let made = [
        "//anon",
        "/dev/zero",
        "/memfd:",
        "/SYSV",
        "/anon_hugepage",
        "/dev/shm/",
    ];
    if path == "[vdso]" {
        ModuleKind::Vdso
    } else if path.starts_with('/') && !made.iter().any(|made| path.starts_with(made)) {
        ModuleKind::Elf
    } else {
        ModuleKind::Anonymous
    }
}
