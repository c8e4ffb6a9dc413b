//! What an archive holds on its way, while the copies in it are unwound. Knows no rows but those of mappings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use foldhash::HashMap;
use rawstack_format::copies::StackCopies;
use rawstack_format::id::StackId;
use rawstack_format::record::{Batch, Record};

use super::Unwinding;
use super::job::{Job, UnwoundCopies, most_frames};
use super::spaces::Spaces;
use crate::guard::guarded;

/// Chunks of copies that are unwound or wait for their turn, beyond one for each thread.
const MORE_JOBS: usize = 2;
/// Records that wait for the copies before them, at most.
const MAX_WAITING: usize = 64;

/// What goes through.
pub(crate) trait HasRecord {
    /// The record in it, where there is one.
    fn record(&self) -> Option<&Record>;
}

impl HasRecord for Record {
    fn record(&self) -> Option<&Record> {
        Some(self)
    }
}

/// What goes through, and what comes of the copies that stand before it.
#[derive(Debug)]
struct Entry<T> {
    item: Option<T>,
    unwound: Option<Receiver<UnwoundCopies>>,
}

/// What is ready, with the stacks of the copies that stood before it; no item where nothing followed these.
pub(crate) type Ready<T> = (Option<T>, Option<UnwoundCopies>);

/// Records of one archive in their order.
#[derive(Debug)]
pub(crate) struct Ahead<T> {
    archive: u32,
    queue: VecDeque<Entry<T>>,
    jobs: usize,
    spaces: Spaces,
    /// Copies whose batch is still to come, with the bytes that they took in the archive.
    copies: Option<(StackCopies, u32)>,
}

impl<T: HasRecord> Ahead<T> {
    /// Of archive number `archive`.
    pub(crate) fn new(archive: u32) -> Self {
        Self {
            archive,
            queue: VecDeque::new(),
            jobs: 0,
            spaces: Spaces::default(),
            copies: None,
        }
    }

    /// Take copies, and the bytes that they took in the archive. They wait for the batch that they are of.
    pub(crate) fn copies(&mut self, copies: (StackCopies, u32), unwinding: &mut Unwinding) {
        // Those before are of a batch that is lost.
        self.end(unwinding);
        self.copies = Some(copies);
    }

    /// Take `item`, whose record is none of copies.
    pub(crate) fn push(&mut self, item: T, unwinding: &mut Unwinding) {
        let unwound = self.before(item.record(), unwinding);
        self.queue.push_back(Entry {
            item: Some(item),
            unwound,
        });
    }

    /// Start to unwind what stands before a record that needs it.
    fn before(
        &mut self,
        record: Option<&Record>,
        unwinding: &mut Unwinding,
    ) -> Option<Receiver<UnwoundCopies>> {
        match record? {
            Record::Batch(batch) => {
                self.spaces.take(self.archive, batch, unwinding);
                let has_rows = !(batch.samples.is_empty() && batch.completions.is_empty());
                let copies = self.copies.take_if(|_| has_rows)?;
                let times = self.times(batch);
                Some(self.start(copies, times, unwinding))
            }
            Record::Vdso(vdso) => {
                unwinding.add_vdso(self.archive, vdso);
                None
            }
            _ => None,
        }
    }

    /// No batch follows the copies that were taken last.
    pub(crate) fn end(&mut self, unwinding: &mut Unwinding) {
        if let Some(copies) = self.copies.take() {
            let unwound = Some(self.start(copies, HashMap::default(), unwinding));
            self.queue.push_back(Entry {
                item: None,
                unwound,
            });
        }
    }

    /// The next item that is ready; waits where `all` are wanted, or where many are on their way.
    pub(crate) fn pop(&mut self, all: bool, unwinding: &Unwinding) -> Option<Ready<T>> {
        let most = unwinding.threads() + MORE_JOBS;
        let front = self.queue.front()?;
        let unwound = match &front.unwound {
            None => None,
            Some(coming) if all || self.jobs > most || self.queue.len() > MAX_WAITING => {
                Some(coming.recv().unwrap_or_default())
            }
            Some(coming) => match coming.try_recv() {
                Ok(unwound) => Some(unwound),
                Err(TryRecvError::Disconnected) => Some(UnwoundCopies::default()),
                Err(TryRecvError::Empty) => return None,
            },
        };
        self.jobs -= usize::from(unwound.is_some());
        let entry = self.queue.pop_front()?;
        Some((entry.item, unwound))
    }

    fn start(
        &mut self,
        (copies, stored_len): (StackCopies, u32),
        times: HashMap<StackId, u64>,
        unwinding: &mut Unwinding,
    ) -> Receiver<UnwoundCopies> {
        let (sender, receiver) = sync_channel(1);
        let job = Job {
            copies,
            most_frames: most_frames(stored_len),
            known: self.spaces.known(),
            times,
            modules: unwinding.modules(),
            rules: Arc::clone(&unwinding.rules),
        };
        unwinding.start(move || {
            // Nobody waits any more where the command has failed.
            _ = sender.send(guarded(|| job.run()).unwrap_or_default());
        });
        self.jobs += 1;
        receiver
    }

    /// When the user halves of a batch were taken, where mappings have changed since.
    fn times(&self, batch: &Batch) -> HashMap<StackId, u64> {
        let own = batch.samples.iter().filter(|row| row.id == row.owner);
        let samples = own.map(|row| (row.owner, row.time_ns));
        let completions = batch.completions.iter().map(|row| (row.owner, row.time_ns));
        let all = || samples.clone().chain(completions.clone());
        let first = all().map(|(_, time)| time).min().unwrap_or(u64::MAX);
        if self.spaces.have_changed_since(first) {
            all().collect()
        } else {
            HashMap::default()
        }
    }
}
