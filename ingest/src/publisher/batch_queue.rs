//! The pushes that wait for the next batch: a bounded queue in memory.
//!
//! A channel would wake the publisher for each push. This queue wakes it only when as many pushes
//! wait as it wants. Below that, a push costs one short lock.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use super::pending_publish::{NotPublished, PendingPublish};
use crate::settings::PublisherSettings;

/// Pushes in the order in which they came.
pub(super) struct BatchQueue {
    settings: PublisherSettings,
    state: Mutex<Waiting>,
    /// Notified when as many pushes wait as the publisher wants.
    enough: Notify,
}

struct Waiting {
    pending: VecDeque<PendingPublish>,
    /// The pushes in `pending`.
    pushes: usize,
    /// The bytes of the jobs in `pending`.
    bytes: usize,
    /// The number of pushes that the publisher waits for, if it waits.
    wanted: Option<usize>,
    open: bool,
}

impl Waiting {
    /// Checks that `pushes` more may be appended, so that no more than `limit` wait then.
    fn check(&self, pushes: usize, limit: usize) -> Result<(), NotPublished> {
        if !self.open {
            return Err(NotPublished::Stopping);
        }
        if self.pushes + pushes > limit {
            return Err(NotPublished::Full);
        }
        Ok(())
    }

    fn append(&mut self, publish: PendingPublish) {
        self.pushes += publish.pushes;
        self.bytes += publish.jobs.len();
        self.pending.push_back(publish);
    }
}

impl BatchQueue {
    pub(super) fn new(settings: PublisherSettings) -> Self {
        let state =
            Waiting { pending: VecDeque::new(), pushes: 0, bytes: 0, wanted: None, open: true };
        Self { settings, state: Mutex::new(state), enough: Notify::new() }
    }

    pub(super) fn settings(&self) -> &PublisherSettings {
        &self.settings
    }

    /// Returns how many pushes wait.
    pub(super) fn waiting(&self) -> usize {
        self.state().pushes
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a push.
    ///
    /// # Errors
    /// If the queue is full or closed.
    pub(super) fn enqueue(&self, push: PendingPublish) -> Result<(), NotPublished> {
        let mut state = self.state();
        state.check(push.pushes, self.settings.waiting)?;
        state.append(push);
        self.notify_if_enough(state);
        Ok(())
    }

    /// Appends the groups of one request, in their order and with no other push between them.
    /// Groups that do not fit are answered immediately. Groups may fill half of the queue, so that
    /// single pushes are accepted however many pushes come in batch requests.
    pub(super) fn enqueue_groups(&self, groups: Vec<PendingPublish>) {
        let mut refused = Vec::new();
        let mut state = self.state();
        for group in groups {
            match state.check(group.pushes, self.settings.max_waiting_in_groups()) {
                Ok(()) => state.append(group),
                Err(why) => refused.push((group, why)),
            }
        }
        self.notify_if_enough(state);
        for (group, why) in refused {
            group.answer(Err(why));
        }
    }

    /// Wakes the publisher if as many pushes wait as it wants.
    fn notify_if_enough(&self, mut state: MutexGuard<'_, Waiting>) {
        if state.wanted.is_some_and(|wanted| self.has_enough(&state, wanted)) {
            state.wanted = None;
            drop(state);
            self.enough.notify_one();
        }
    }

    /// Refuses all further pushes. Those that wait are still published.
    pub(super) fn close(&self) {
        self.state().open = false;
        self.enough.notify_one();
    }

    /// Refuses all further pushes and those that wait.
    pub(super) fn fail_all(&self) {
        let mut state = self.state();
        state.open = false;
        (state.pushes, state.bytes) = (0, 0);
        // Dropping the senders answers `Stopping`.
        state.pending.clear();
    }

    /// Waits until `wanted` pushes wait, or as many as one batch can hold, or the queue is closed.
    /// Returns false if it is closed and empty.
    pub(super) async fn wait_for(&self, wanted: usize) -> bool {
        loop {
            {
                let mut state = self.state();
                if !state.open || self.has_enough(&state, wanted) {
                    state.wanted = None;
                    return !state.pending.is_empty();
                }
                state.wanted = Some(wanted);
            }
            // `Notify` keeps a notification that came since the lock was released.
            self.enough.notified().await;
        }
    }

    fn has_enough(&self, state: &Waiting, wanted: usize) -> bool {
        state.pushes >= wanted.min(self.settings.batch_jobs)
            || state.pending.front().is_some_and(|first| first.is_continuation)
            || state.bytes >= self.settings.batch_bytes
    }

    /// Takes the next batch, within its bounds. Pushes that waited too long are answered instead.
    pub(super) fn take_batch(&self) -> Vec<PendingPublish> {
        let PublisherSettings { batch_jobs, batch_bytes, timeout, .. } = self.settings;
        let now = Instant::now();
        let mut state = self.state();
        let mut batch = Vec::with_capacity(state.pending.len().min(batch_jobs));
        let (mut pushes, mut bytes) = (0, 0);
        while pushes < batch_jobs
            && let Some(publish) = state.pending.pop_front()
        {
            let (more, size) = (publish.pushes, publish.jobs.len());
            let fits = pushes + more <= batch_jobs && bytes + size <= batch_bytes;
            if now.saturating_duration_since(publish.enqueued_at) >= timeout {
                publish.answer(Err(NotPublished::Late));
            } else if !batch.is_empty() && !fits {
                state.pending.push_front(publish);
                break;
            } else {
                pushes += more;
                bytes += size;
                batch.push(publish);
            }
            state.pushes -= more;
            state.bytes -= size;
        }
        batch
    }
}

impl fmt::Debug for BatchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchQueue").field("settings", &self.settings).finish_non_exhaustive()
    }
}
