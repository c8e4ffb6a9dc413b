//! The memory of processes and the registers of threads as copies showed them last. Knows nothing of copies.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{MAX_REGISTERS, WORD};

/// Words of a page of the image.
pub(super) const PAGE_WORDS: usize = 128;

/// Bytes of a page of the image.
const PAGE: u64 = PAGE_WORDS as u64 * WORD;

/// Words of a page.
pub(super) type Page = [u64; PAGE_WORDS];

/// A page of which nothing is known.
pub(super) static NO_PAGE: Page = [0; PAGE_WORDS];

/// Registers of a thread.
pub(super) type Values = [u64; MAX_REGISTERS];

/// All zeros at first.
#[derive(Default)]
pub(super) struct Image {
    /// By process and number of the page.
    pages: HashMap<(u32, u64), Page, RandomState>,
    /// By index of the task.
    registers: Vec<Values>,
}

impl Image {
    /// Forget everything, and keep the memory.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.registers.clear();
    }

    /// Pages that are kept.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The page that holds `address`, and which word of it.
    pub(super) fn page(&self, process: u32, address: u64) -> (&Page, usize) {
        let page = self.pages.get(&(process, address / PAGE));
        (page.unwrap_or(&NO_PAGE), place(address))
    }

    /// The word at `address`, a multiple of [`WORD`].
    pub(super) fn word(&self, process: u32, address: u64) -> u64 {
        let (page, place) = self.page(process, address);
        page[place]
    }

    /// Set words from `address` on, a multiple of [`WORD`].
    pub(super) fn set(&mut self, process: u32, mut address: u64, mut words: &[u64]) {
        while !words.is_empty() {
            let place = place(address);
            let len = words.len().min(PAGE_WORDS - place);
            let (own, rest) = words.split_at(len);
            let page = self.pages.entry((process, address / PAGE));
            page.or_insert(NO_PAGE)[place..place + len].copy_from_slice(own);
            words = rest;
            address = address.wrapping_add(len as u64 * WORD);
        }
    }

    /// Registers of the task.
    pub(super) fn registers(&self, task: u32) -> &Values {
        static NONE: Values = [0; MAX_REGISTERS];
        self.registers.get(task as usize).unwrap_or(&NONE)
    }

    /// Registers of the task, to be changed.
    pub(super) fn registers_mut(&mut self, task: u32) -> &mut Values {
        let task = task as usize;
        if self.registers.len() <= task {
            self.registers.resize(task + 1, [0; MAX_REGISTERS]);
        }
        &mut self.registers[task]
    }
}

/// Which word of its page `address` is.
fn place(address: u64) -> usize {
    // SANITY: a remainder of 1024 divided by 8 is below 128.
    (address % PAGE / WORD) as usize
}
