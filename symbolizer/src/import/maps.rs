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
/// Bit of a record's `misc`: a build ID stands in the place of device and inode.
const MISC_BUILD_ID: u16 = 1 << 14;
/// Where in the body of a record that place is: behind process, thread, address, length and offset.
const FILE_AT: usize = 32;
/// Lengths of the build IDs that linkers make by default.
const USUAL_LENGTHS: [u8; 2] = [16, 20];

/// `misc` of a mapping, without the bit that says it has a build ID where it has none.
///
/// Linux from 5.12 on leaves that bit set in the records of those who have not asked for build IDs, while anybody else on
/// that CPU does, as rawstack-record does (`perf_event_mmap_output` in `kernel/events/core.c`). Then device and inode are
/// taken for a build ID, and its length is that of no build ID in most cases. `is_asked` is whether the event that the
/// record belongs to has asked; perf can also put build IDs in afterwards.
pub(super) fn true_misc(misc: u16, body: &[u8], is_asked: bool) -> u16 {
    let usual = |file: &[u8]| matches!(file, [length, 0, 0, 0] if USUAL_LENGTHS.contains(length));
    let file = body.get(FILE_AT..FILE_AT + 4);
    if is_asked || file.is_some_and(usual) {
        misc
    } else {
        misc & !MISC_BUILD_ID
    }
}

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
        let module = self
            .modules
            .number(&module, &|| (self.code)(&module, &mapping));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that devices and inodes are not taken for build IDs, and build IDs that were put in later are.
    #[test]
    fn wrong_build_ids() {
        let misc = MISC_BUILD_ID | 2;
        let of = |file: [u8; 4], is_asked| {
            let body = [&[0; FILE_AT][..], &file, &[1; 20]].concat();
            true_misc(misc, &body, is_asked) == misc
        };
        // Devices: 254:1 (virtio), 8:1 (SCSI), 259:3 (NVMe), 0:29 (overlayfs).
        for device in [[254, 0, 0, 0], [8, 0, 0, 0], [3, 1, 0, 0], [0; 4]] {
            assert!(!of(device, false), "{device:?}");
        }
        assert!(of([20, 0, 0, 0], false) && of([16, 0, 0, 0], false) && of([8, 0, 0, 0], true));
        assert_eq!(true_misc(misc, &[], false), 2);
    }
}
