//! Where the kernel has its table for unwinding (ORC), for the programs of `src/c/orc.bpf.h`. Knows no stacks.

use crate::skel::RecorderSkel;

/// Addresses of the kernel's table for unwinding and of code that it is about, by its symbols. Where one is not known,
/// nothing is unwound by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrcTables {
    text: [u64; 2],
    sched_text: [u64; 2],
    lock_text: [u64; 2],
    places: [u64; 2],
    entries: u64,
}

impl OrcTables {
    /// Take a symbol of the kernel proper if it is one of them.
    pub fn note(&mut self, name: &str, address: u64) {
        let place = match name {
            "_stext" => &mut self.text[0],
            "_etext" => &mut self.text[1],
            "__sched_text_start" => &mut self.sched_text[0],
            "__sched_text_end" => &mut self.sched_text[1],
            "__lock_text_start" => &mut self.lock_text[0],
            "__lock_text_end" => &mut self.lock_text[1],
            "__start_orc_unwind_ip" => &mut self.places[0],
            "__stop_orc_unwind_ip" => &mut self.places[1],
            "__start_orc_unwind" => &mut self.entries,
            _ => return,
        };
        *place = address;
    }

    /// Whether all is known.
    fn is_whole(&self) -> bool {
        let pairs = [self.text, self.sched_text, self.lock_text, self.places];
        self.entries != 0 && pairs.iter().all(|[start, end]| *start != 0 && start < end)
    }

    /// Tell the programs, which may run already: what they read in between they check before they use it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tell(&self, skel: &mut RecorderSkel<'_>) {
        if let Some(data) = skel
            .maps
            .bss_data
            .as_deref_mut()
            .filter(|_| self.is_whole())
        {
            let tables = &mut data.orc_tables;
            [tables.sched_text, tables.sched_text_end] = self.sched_text;
            [tables.lock_text, tables.lock_text_end] = self.lock_text;
            [tables.places, tables.places_end] = self.places;
            tables.entries = self.entries;
            [tables.text, tables.text_end] = self.text;
        }
    }

    /// Other machines' kernels have no such table.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn tell(&self, _: &mut RecorderSkel<'_>) {}
}
