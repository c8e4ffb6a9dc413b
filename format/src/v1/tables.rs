//! Processes, threads, modules and mappings as columns.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter};
use super::column::{
    apply32, difference32, narrow, pack, pack_deltas, pack_deltas32, unpack, unpack_as,
    unpack_deltas, unpack_deltas32,
};
use super::stacks::{index_code, index_of};
use super::{checked_rows, row_count};
use crate::error::Invalid;
use crate::id::{Addr, FileOffset, ModuleIndex};
use crate::record::{Mapping, Module, ModuleKind, Process, Segment, Thread};

/// Process table. Names are blobs: comm and cgroup of each row.
#[derive(Archive, Serialize)]
pub(crate) struct Processes {
    pub(crate) rows: u32,
    pub(crate) pid: Vec<u8>,
    pub(crate) parent: Vec<u8>,
    pub(crate) namespace_pid: Vec<u8>,
    pub(crate) start: Vec<u8>,
    pub(crate) since: Vec<u8>,
}

/// Thread table. Names are blobs: comm of each row.
#[derive(Archive, Serialize)]
pub(crate) struct Threads {
    pub(crate) rows: u32,
    pub(crate) pid: Vec<u8>,
    pub(crate) tid: Vec<u8>,
    pub(crate) start: Vec<u8>,
    pub(crate) since: Vec<u8>,
}

/// Module table. Build ID, content hash and path of each row are blobs.
#[derive(Archive, Serialize)]
pub(crate) struct Modules {
    pub(crate) rows: u32,
    /// Rows of the segment columns: all modules' segments one after the other.
    pub(crate) segments: u32,
    pub(crate) kind: Vec<u8>,
    pub(crate) class: Vec<u8>,
    pub(crate) machine: Vec<u8>,
    pub(crate) page_size: Vec<u8>,
    pub(crate) segment_count: Vec<u8>,
    pub(crate) segment_offset: Vec<u8>,
    /// Address minus offset.
    pub(crate) segment_bias: Vec<u8>,
    pub(crate) segment_size: Vec<u8>,
    pub(crate) segment_flags: Vec<u8>,
}

/// Mapping table. The path of each row is a blob.
#[derive(Archive, Serialize)]
pub(crate) struct Mappings {
    pub(crate) rows: u32,
    pub(crate) pid: Vec<u8>,
    pub(crate) start: Vec<u8>,
    /// End minus start.
    pub(crate) length: Vec<u8>,
    pub(crate) offset: Vec<u8>,
    pub(crate) protection: Vec<u8>,
    pub(crate) device_major: Vec<u8>,
    pub(crate) device_minor: Vec<u8>,
    pub(crate) inode: Vec<u8>,
    pub(crate) since: Vec<u8>,
    pub(crate) module: Vec<u8>,
}

pub(crate) fn encode_processes(
    rows: &[Process],
    blobs: &mut BlobWriter,
) -> Result<Processes, Invalid> {
    for row in rows {
        blobs.push(row.comm.as_bytes());
        blobs.push(row.cgroup.as_bytes());
    }
    Ok(Processes {
        rows: row_count(rows)?,
        pid: pack_deltas32(rows.iter().map(|p| p.pid)),
        parent: pack(rows.iter().map(|p| difference32(p.pid, p.parent))),
        namespace_pid: pack(rows.iter().map(|p| p.namespace_pid)),
        start: pack_deltas(rows.iter().map(|p| p.start_ns)),
        since: pack_deltas(rows.iter().map(|p| p.since_ns)),
    })
}

pub(crate) fn decode_processes(
    a: &ArchivedProcesses,
    blobs: &mut BlobReader<'_>,
) -> Result<Vec<Process>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let pids = unpack_deltas32(&a.pid, rows)?;
    let parents: Vec<u32> = unpack_as(&a.parent, rows)?;
    let namespace_pids: Vec<u32> = unpack_as(&a.namespace_pid, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let sinces = unpack_deltas(&a.since, rows)?;
    (0..rows)
        .map(|row| {
            Ok(Process {
                pid: pids[row],
                parent: apply32(pids[row], parents[row]),
                namespace_pid: namespace_pids[row],
                start_ns: starts[row],
                since_ns: sinces[row],
                comm: blobs.string()?,
                cgroup: blobs.string()?,
            })
        })
        .collect()
}

pub(crate) fn encode_threads(rows: &[Thread], blobs: &mut BlobWriter) -> Result<Threads, Invalid> {
    for row in rows {
        blobs.push(row.comm.as_bytes());
    }
    Ok(Threads {
        rows: row_count(rows)?,
        pid: pack_deltas32(rows.iter().map(|t| t.pid)),
        tid: pack(rows.iter().map(|t| difference32(t.pid, t.tid))),
        start: pack_deltas(rows.iter().map(|t| t.start_ns)),
        since: pack_deltas(rows.iter().map(|t| t.since_ns)),
    })
}

pub(crate) fn decode_threads(
    a: &ArchivedThreads,
    blobs: &mut BlobReader<'_>,
) -> Result<Vec<Thread>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let pids = unpack_deltas32(&a.pid, rows)?;
    let tids: Vec<u32> = unpack_as(&a.tid, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let sinces = unpack_deltas(&a.since, rows)?;
    (0..rows)
        .map(|row| {
            Ok(Thread {
                pid: pids[row],
                tid: apply32(pids[row], tids[row]),
                start_ns: starts[row],
                since_ns: sinces[row],
                comm: blobs.string()?,
            })
        })
        .collect()
}

pub(crate) fn encode_modules(rows: &[Module], blobs: &mut BlobWriter) -> Result<Modules, Invalid> {
    for row in rows {
        blobs.push_build_id(row.build_id.as_ref());
        blobs.push(row.content_hash.as_ref().map_or(&[], |hash| hash));
        blobs.push(row.path.as_bytes());
    }
    let segments: Vec<Segment> = rows
        .iter()
        .flat_map(|m| m.segments.iter().copied())
        .collect();
    Ok(Modules {
        rows: row_count(rows)?,
        segments: row_count(&segments)?,
        kind: pack(rows.iter().map(|m| m.kind as u8)),
        class: pack(rows.iter().map(|m| m.class)),
        machine: pack(rows.iter().map(|m| m.machine)),
        page_size: pack(rows.iter().map(|m| m.page_size)),
        segment_count: pack(rows.iter().map(|m| m.segments.len() as u64)),
        segment_offset: pack(segments.iter().map(|s| s.offset.0)),
        segment_bias: pack(segments.iter().map(|s| s.vaddr.wrapping_sub(s.offset.0))),
        segment_size: pack(segments.iter().map(|s| s.file_size)),
        segment_flags: pack(segments.iter().map(|s| s.flags)),
    })
}

pub(crate) fn decode_modules(
    a: &ArchivedModules,
    blobs: &mut BlobReader<'_>,
) -> Result<Vec<Module>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let kinds: Vec<u8> = unpack_as(&a.kind, rows)?;
    let classes: Vec<u8> = unpack_as(&a.class, rows)?;
    let machines: Vec<u16> = unpack_as(&a.machine, rows)?;
    let page_sizes: Vec<u32> = unpack_as(&a.page_size, rows)?;
    let counts: Vec<u32> = unpack_as(&a.segment_count, rows)?;
    let all = decode_segments(a)?;
    let mut rest = all.as_slice();
    let mut modules = Vec::with_capacity(rows);
    for row in 0..rows {
        let (segments, behind) = rest
            .split_at_checked(counts[row] as usize)
            .ok_or(Invalid::Rows)?;
        rest = behind;
        modules.push(Module {
            kind: module_kind(kinds[row])?,
            class: classes[row],
            machine: machines[row],
            page_size: page_sizes[row],
            build_id: blobs.build_id()?,
            content_hash: content_hash(blobs.bytes()?)?,
            path: blobs.string()?,
            segments: segments.to_vec(),
        });
    }
    if rest.is_empty() {
        Ok(modules)
    } else {
        Err(Invalid::Rows)
    }
}

fn decode_segments(a: &ArchivedModules) -> Result<Vec<Segment>, Invalid> {
    let rows = checked_rows(a.segments.to_native())?;
    let offsets = unpack(&a.segment_offset, rows)?;
    let biases = unpack(&a.segment_bias, rows)?;
    let sizes = unpack(&a.segment_size, rows)?;
    let flags: Vec<u32> = unpack_as(&a.segment_flags, rows)?;
    let segment = |row: usize| Segment {
        offset: FileOffset(offsets[row]),
        vaddr: offsets[row].wrapping_add(biases[row]),
        file_size: sizes[row],
        flags: flags[row],
    };
    Ok((0..rows).map(segment).collect())
}

fn content_hash(bytes: &[u8]) -> Result<Option<[u8; 16]>, Invalid> {
    if bytes.is_empty() {
        Ok(None)
    } else {
        bytes.try_into().map(Some).map_err(|_| Invalid::Value)
    }
}

fn module_kind(number: u8) -> Result<ModuleKind, Invalid> {
    Ok(match number {
        0 => ModuleKind::Elf,
        1 => ModuleKind::Kernel,
        2 => ModuleKind::KernelModule,
        3 => ModuleKind::BpfProgram,
        4 => ModuleKind::Vdso,
        5 => ModuleKind::Anonymous,
        _ => return Err(Invalid::Value),
    })
}

pub(crate) fn encode_mappings(
    rows: &[Mapping],
    blobs: &mut BlobWriter,
) -> Result<Mappings, Invalid> {
    for row in rows {
        blobs.push(row.path.as_bytes());
    }
    Ok(Mappings {
        rows: row_count(rows)?,
        pid: pack_deltas32(rows.iter().map(|m| m.pid)),
        start: pack_deltas(rows.iter().map(|m| m.start.0)),
        length: pack(rows.iter().map(|m| m.end.0.wrapping_sub(m.start.0))),
        offset: pack(rows.iter().map(|m| m.offset.0)),
        protection: pack(rows.iter().map(|m| m.protection)),
        device_major: pack(rows.iter().map(|m| m.device_major)),
        device_minor: pack(rows.iter().map(|m| m.device_minor)),
        inode: pack(rows.iter().map(|m| m.inode)),
        since: pack_deltas(rows.iter().map(|m| m.since_ns)),
        module: pack(rows.iter().map(|m| index_code(m.module.0))),
    })
}

pub(crate) fn decode_mappings(
    a: &ArchivedMappings,
    blobs: &mut BlobReader<'_>,
) -> Result<Vec<Mapping>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let pids = unpack_deltas32(&a.pid, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let lengths = unpack(&a.length, rows)?;
    let offsets = unpack(&a.offset, rows)?;
    let protections = unpack(&a.protection, rows)?;
    let majors = unpack(&a.device_major, rows)?;
    let minors = unpack(&a.device_minor, rows)?;
    let inodes = unpack(&a.inode, rows)?;
    let sinces = unpack_deltas(&a.since, rows)?;
    let modules: Vec<u32> = unpack_as(&a.module, rows)?;
    (0..rows)
        .map(|row| {
            Ok(Mapping {
                pid: pids[row],
                start: Addr(starts[row]),
                end: Addr(starts[row].wrapping_add(lengths[row])),
                offset: FileOffset(offsets[row]),
                protection: narrow(protections[row])?,
                device_major: narrow(majors[row])?,
                device_minor: narrow(minors[row])?,
                inode: inodes[row],
                since_ns: sinces[row],
                path: blobs.string()?,
                module: ModuleIndex(index_of(modules[row])),
            })
        })
        .collect()
}
