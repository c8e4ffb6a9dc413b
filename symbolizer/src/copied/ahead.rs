//! Records on their way, while the copies among them are unwound. Knows no rows but those of mappings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use foldhash::HashMap;
use rawstack_format::copies::StackCopies;
use rawstack_format::id::StackId;
use rawstack_format::record::{Batch, Record};

use super::Unwinding;
use super::job::{Job, UnwoundCopies};
use super::spaces::Spaces;
use crate::guard::guarded;

/// Chunks of copies that are unwound or wait for their turn, beyond one for each thread.
const MORE_JOBS: usize = 2;
/// Records that wait for the copies before them, at most.
const MAX_WAITING: usize = 64;

/// A record, and what comes of the copies that stand before it.
#[derive(Debug)]
struct Entry {
    record: Option<Record>,
    unwound: Option<Receiver<UnwoundCopies>>,
}

/// A record that is ready, with the stacks of the copies that stood before it.
pub(crate) type Ready = (Option<Record>, Option<UnwoundCopies>);

/// Records of one archive in their order.
#[derive(Debug)]
pub(crate) struct Ahead {
    archive: u32,
    queue: VecDeque<Entry>,
    jobs: usize,
    spaces: Spaces,
    /// Copies whose batch is still to come.
    copies: Option<StackCopies>,
}

impl Ahead {
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

    /// Add the next record.
    pub(crate) fn push(&mut self, record: Record, unwinding: &mut Unwinding) {
        let mut unwound = None;
        match record {
            Record::StackCopies(copies) => {
                // Those before are of a batch that is lost.
                if let Some(before) = self.copies.replace(copies) {
                    unwound = Some(self.start(before, HashMap::default(), unwinding));
                }
                if unwound.is_some() {
                    self.queue.push_back(Entry {
                        record: None,
                        unwound,
                    });
                }
                return;
            }
            Record::Batch(ref batch) => {
                self.spaces.take(self.archive, batch, unwinding);
                let has_rows = !(batch.samples.is_empty() && batch.completions.is_empty());
                if let Some(copies) = self.copies.take_if(|_| has_rows) {
                    let times = self.times(batch);
                    unwound = Some(self.start(copies, times, unwinding));
                }
            }
            Record::Vdso(ref vdso) => unwinding.add_vdso(self.archive, vdso),
            _ => {}
        }
        self.queue.push_back(Entry {
            record: Some(record),
            unwound,
        });
    }

    /// Nothing follows.
    pub(crate) fn end(&mut self, unwinding: &mut Unwinding) {
        if let Some(copies) = self.copies.take() {
            let unwound = Some(self.start(copies, HashMap::default(), unwinding));
            self.queue.push_back(Entry {
                record: None,
                unwound,
            });
        }
    }

    /// The next record that is ready; waits where `all` are wanted, or where many are on their way.
    pub(crate) fn pop(&mut self, all: bool, unwinding: &Unwinding) -> Option<Ready> {
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
        Some((entry.record, unwound))
    }

    fn start(
        &mut self,
        copies: StackCopies,
        times: HashMap<StackId, u64>,
        unwinding: &mut Unwinding,
    ) -> Receiver<UnwoundCopies> {
        let (sender, receiver) = sync_channel(1);
        let job = Job {
            copies,
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
