//! Rows of mappings: those that frames lie in, and all of a program whose stacks are unwound later.

use rawstack_format::id::{Addr, FileOffset};
use rawstack_format::record::Mapping;

use super::Epoch;
use crate::module::ModuleNumber;
use crate::program;
use crate::world::{Running, World};

impl Epoch {
    /// Put in all that process `pid` had mapped as code at `time_ns`. Which of it a stack needs is not known until it is
    /// unwound.
    pub(crate) fn put_code(&mut self, world: &mut World, pid: u32, time_ns: u64) {
        let running = world.running(pid, time_ns);
        let written = self.programs.get(&running.program).copied();
        if running.version.is_some() && running.version == written {
            return;
        }
        for mapping in world.code(pid, time_ns) {
            if !self.has_mapping(running, &mapping) {
                let module = world.module_of(pid, &mapping);
                self.put_mapping(world, (pid, running), &mapping, module);
            }
        }
        if let Some(version) = running.version {
            self.programs.insert(running.program, version);
        }
    }

    fn has_mapping(&self, running: Running, mapping: &program::Mapping) -> bool {
        let known = self.mappings.get(&key(running, mapping));
        known == Some(&since_ns(running, mapping))
    }

    /// Put in a mapping of the program that was running in process `pid`, unless it is there.
    pub(super) fn put_mapping(
        &mut self,
        world: &World,
        (pid, running): (u32, Running),
        mapping: &program::Mapping,
        module: ModuleNumber,
    ) {
        if self.has_mapping(running, mapping) {
            return;
        }
        let since_ns = since_ns(running, mapping);
        self.mappings.insert(key(running, mapping), since_ns);
        let (device_major, device_minor, inode) = mapping.file;
        let row = Mapping {
            pid,
            start: Addr(mapping.addresses.start),
            end: Addr(mapping.addresses.end),
            offset: FileOffset(mapping.offset),
            protection: mapping.protection,
            device_major,
            device_minor,
            inode,
            since_ns,
            path: String::from_utf8_lossy(&mapping.path).into_owned(),
            module: self.put_module(world, module),
        };
        self.bytes += row.raw_bound();
        self.batch.mappings.push(row);
    }
}

fn key(running: Running, mapping: &program::Mapping) -> (u32, u64, u64) {
    let addresses = &mapping.addresses;
    (running.program, addresses.start, addresses.end)
}

/// When the program had the mapping first: a child has its parent's from its own start on.
fn since_ns(running: Running, mapping: &program::Mapping) -> u64 {
    mapping.since_ns.max(running.since_ns)
}
