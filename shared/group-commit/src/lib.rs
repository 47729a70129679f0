//! Group commit: entries that come while others are being committed wait, and are then committed
//! together, as one *group*.
//!
//! Most of what a commit costs is the commit itself: a network round trip, a disk flush, a wake-up
//! of a thread. So groups should be large, but an entry should not wait for others that may not
//! come. A group goes as soon as it is as large as all that is in flight: a lone entry goes
//! immediately, and under load two groups take turns, each with about half of the entries. No timer
//! is needed, because each group that ends lowers the size that is waited for.
//!
//! An entry that has to wait costs one short lock: no task is woken, and nothing is allocated but
//! its place in the queue. The task that commits a group goes on with the next one if enough waits
//! by then, so a task is spawned only for a group that starts beside the others.
//!
//! Entries go in the order in which they came, but groups in flight may overtake each other.
//!
//! Failures: an entry that does not fit in the queue is refused immediately. A group
//! that panics ends like any other, so its entries are dropped and the next group goes. The runtime
//! of the caller runs the groups; if it has stopped, the entries that wait are dropped.
//!
//! - here: the groups in flight
//! - `group_queue`: the decisions which entries wait and which group goes

mod group_queue;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::Notify};

use self::group_queue::GroupQueue;

/// The size of an entry, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of items; an entry may stand for several.
    pub items: usize,
    /// The bytes of these items.
    pub bytes: usize,
}

/// The bounds of a [`GroupCommit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest group; a single entry may be larger.
    pub group: Size,
    /// The most groups in flight.
    pub groups: usize,
}

/// The reason why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many items wait.
    Full,
    /// The group commit is closed.
    Closed,
}

/// The work that groups share.
pub trait Work: Send + Sync + 'static {
    /// An entry that waits for its group. If it is dropped, it is not committed.
    type Entry: Send + 'static;

    /// Returns the size of an entry, always the same.
    fn size(entry: &Self::Entry) -> Size;

    /// Returns true if an entry that has come to the front goes without waiting for others.
    fn goes_at_once(_entry: &Self::Entry) -> bool {
        false
    }

    /// Returns true if an entry that still waits need not be committed any more.
    fn is_abandoned(_entry: &Self::Entry) -> bool {
        false
    }

    /// Answers an entry that was not taken.
    fn refuse(entry: Self::Entry, why: Refused);

    /// Commits a group and answers its entries. The group is in flight until the future ends.
    fn commit(&self, group: Vec<Self::Entry>) -> impl Future<Output = ()> + Send;
}

/// Commits entries in groups.
pub struct GroupCommit<W: Work> {
    shared: Arc<Shared<W>>,
}

struct Shared<W: Work> {
    limits: Limits,
    work: W,
    queue: Mutex<GroupQueue<W>>,
    /// Notified when everything is committed after [`GroupCommit::close`].
    drained: Notify,
}

impl<W: Work> GroupCommit<W> {
    /// Makes a group commit with nothing in it. Limits of zero count as one.
    pub fn new(limits: Limits, work: W) -> Self {
        let Limits { group: Size { items, bytes }, groups } = limits;
        let group = Size { items: items.max(1), bytes: bytes.max(1) };
        let limits = Limits { group, groups: groups.max(1) };
        let (queue, drained) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { limits, work, queue, drained }) }
    }

    /// Appends entries, in their order and with no other between them. Entries that would make more
    /// than `most_waiting` items wait are refused. Once an entry is taken, it is committed even if
    /// the caller goes.
    pub fn enqueue(&self, entries: impl IntoIterator<Item = W::Entry>, most_waiting: usize) {
        let mut refused = Vec::new();
        let mut queue = self.shared.queue();
        queue.sweep();
        for entry in entries {
            match queue.check(W::size(&entry), most_waiting) {
                Ok(()) => queue.append(entry),
                Err(why) => refused.push((entry, why)),
            }
        }
        Shared::start_if_due(&self.shared, queue);
        for (entry, why) in refused {
            W::refuse(entry, why);
        }
    }

    /// Returns the number of items that wait for their group.
    pub fn waiting(&self) -> usize {
        self.shared.queue().waiting_items()
    }

    /// Refuses all further entries. Waiting entries are still committed, and wait for no others.
    pub fn close(&self) {
        let mut queue = self.shared.queue();
        queue.is_open = false;
        Shared::start_if_due(&self.shared, queue);
    }

    /// Waits until everything is committed after [`close`](Self::close).
    pub async fn drained(&self) {
        loop {
            // Created before the check: it is notified of what happens from here on.
            let drained = self.shared.drained.notified();
            if self.shared.queue().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Refuses all further entries and those that wait. Groups in flight go on.
    pub fn refuse_all(&self) {
        let mut queue = self.shared.queue();
        queue.is_open = false;
        let refused = queue.take_all();
        drop(queue);
        for entry in refused {
            W::refuse(entry, Refused::Closed);
        }
    }
}

impl<W: Work> Shared<W> {
    fn queue(&self) -> MutexGuard<'_, GroupQueue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a group if one is due. It takes its entries when its task first runs, so that entries
    /// that one task makes one after the other go together.
    fn start_if_due(this: &Arc<Self>, mut queue: MutexGuard<'_, GroupQueue<W>>) {
        if !queue.may_start(&this.limits) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            // The runtime has stopped, and with it those who wait for an answer.
            let dropped = queue.take_all();
            drop(queue);
            drop(dropped);
            return;
        };
        queue.begin_start();
        drop(queue);
        let this = Arc::clone(this);
        runtime.spawn(async move {
            let mut place = Place { shared: &this, is_starting: true, items: 0 };
            while let Some(group) = place.next_group() {
                this.work.commit(group).await;
            }
        });
    }
}

/// A place among the groups in flight. Dropping it starts another group if one is due, even if the
/// group in it panicked.
struct Place<'a, W: Work> {
    shared: &'a Arc<Shared<W>>,
    is_starting: bool,
    /// The items of the group in this place.
    items: usize,
}

impl<W: Work> Place<'_, W> {
    /// Ends the group in this place and takes the next one, if one is due.
    fn next_group(&mut self) -> Option<Vec<W::Entry>> {
        let shared = self.shared;
        let mut queue = shared.queue();
        if std::mem::take(&mut self.is_starting) {
            queue.end_start();
        }
        queue.end_group(std::mem::take(&mut self.items));
        let (group, items) = queue.take_group(&shared.limits)?;
        self.items = items;
        Shared::start_if_due(shared, queue);
        Some(group)
    }
}

impl<W: Work> Drop for Place<'_, W> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.end_group(self.items);
        queue.leave();
        let is_drained = queue.is_drained();
        Shared::start_if_due(self.shared, queue);
        if is_drained {
            self.shared.drained.notify_waiters();
        }
    }
}

impl<W: Work> fmt::Debug for GroupCommit<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}
