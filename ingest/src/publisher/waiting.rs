//! Pushes that wait for their batch.
//!
//! A channel would wake the publisher for each push. It is told here only when as many wait as it
//! wants: below that, a push costs one short lock.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use super::NotPublished;
use crate::settings::PublisherSettings;

/// A push on its way, or several that came together and stay together.
pub(super) struct Waiting {
    /// Its job; of several pushes, their jobs, joined.
    pub(super) job: Vec<u8>,
    pub(super) pushes: usize,
    /// Whether this is the rest of a request. Once the rest is first in the line the beginning is
    /// sent, and the request waits for nothing but this: it goes without waiting for more.
    pub(super) is_rest: bool,
    pub(super) since: Instant,
    /// The share of the body memory that this holds until it is answered.
    pub(super) _memory: Option<OwnedSemaphorePermit>,
    pub(super) answer: oneshot::Sender<Result<(), NotPublished>>,
}

impl Waiting {
    pub(super) fn answer(self, outcome: Result<(), NotPublished>) {
        // The request may be gone: its client hung up. The push stands all the same.
        let _ = self.answer.send(outcome);
    }
}

/// A bounded line of pushes, in the order in which they came.
pub(super) struct WaitingRoom {
    settings: PublisherSettings,
    line: Mutex<Line>,
    /// Told when what the publisher waits for is there.
    enough: Notify,
}

struct Line {
    waiting: VecDeque<Waiting>,
    /// Of all that wait.
    pushes: usize,
    /// Of the jobs of all of them.
    bytes: usize,
    /// How many the publisher waits for, if it waits.
    wanted: Option<usize>,
    open: bool,
}

impl Line {
    /// Takes a place at the end, if no more than `most` pushes wait then.
    fn add(&mut self, push: Waiting, most: usize) -> Result<(), (Waiting, NotPublished)> {
        if !self.open {
            return Err((push, NotPublished::Stopping));
        }
        if self.pushes + push.pushes > most {
            return Err((push, NotPublished::Full));
        }
        self.pushes += push.pushes;
        self.bytes += push.job.len();
        self.waiting.push_back(push);
        Ok(())
    }
}

impl WaitingRoom {
    pub(super) fn new(settings: PublisherSettings) -> Self {
        let line = Line { waiting: VecDeque::new(), pushes: 0, bytes: 0, wanted: None, open: true };
        Self { settings, line: Mutex::new(line), enough: Notify::new() }
    }

    pub(super) fn settings(&self) -> &PublisherSettings {
        &self.settings
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place at the end of the line, if there is one.
    pub(super) fn enter(&self, push: Waiting) -> Result<(), NotPublished> {
        let mut line = self.line();
        line.add(push, self.settings.waiting).map_err(|(_, why)| why)?;
        self.tell(line);
        Ok(())
    }

    /// Takes places for the bundles of one request, in their order and together: nothing comes
    /// between them. Bundles that find no place are answered at once. They may take half of the
    /// line, so that however many pushes come in large requests, there is room for single ones.
    pub(super) fn enter_all(&self, bundles: Vec<Waiting>) {
        let mut refused = Vec::new();
        let mut line = self.line();
        for bundle in bundles {
            if let Err(one) = line.add(bundle, self.settings.waiting_in_bundles()) {
                refused.push(one);
            }
        }
        self.tell(line);
        for (bundle, why) in refused {
            bundle.answer(Err(why));
        }
    }

    /// Tells the publisher if there is now what it waits for.
    fn tell(&self, mut line: MutexGuard<'_, Line>) {
        if line.wanted.is_some_and(|wanted| self.has(&line, wanted)) {
            line.wanted = None;
            drop(line);
            self.enough.notify_one();
        }
    }

    /// Lets nobody in any more. Those who are inside are still taken.
    pub(super) fn close(&self) {
        self.line().open = false;
        self.enough.notify_one();
    }

    /// Sends everybody away.
    pub(super) fn dissolve(&self) {
        let mut line = self.line();
        line.open = false;
        (line.pushes, line.bytes) = (0, 0);
        line.waiting.clear();
    }

    /// Waits until so many wait, or as many as one batch can hold, or the room is closed. False
    /// if it is closed and empty.
    pub(super) async fn wait_for(&self, wanted: usize) -> bool {
        loop {
            {
                let mut line = self.line();
                if !line.open || self.has(&line, wanted) {
                    line.wanted = None;
                    return !line.waiting.is_empty();
                }
                line.wanted = Some(wanted);
            }
            // What was told in between is kept for this.
            self.enough.notified().await;
        }
    }

    fn has(&self, line: &Line, wanted: usize) -> bool {
        line.pushes >= wanted.min(self.settings.batch_jobs)
            || line.waiting.front().is_some_and(|first| first.is_rest)
            || line.bytes >= self.settings.batch_bytes
    }

    /// The next batch, within its bounds. Those who waited too long are answered instead.
    pub(super) fn batch(&self) -> Vec<Waiting> {
        let PublisherSettings { batch_jobs, batch_bytes, timeout, .. } = self.settings;
        let now = Instant::now();
        let mut line = self.line();
        let mut batch = Vec::with_capacity(line.waiting.len().min(batch_jobs));
        let (mut pushes, mut bytes) = (0, 0);
        while pushes < batch_jobs
            && let Some(push) = line.waiting.pop_front()
        {
            let (more, size) = (push.pushes, push.job.len());
            let fits = pushes + more <= batch_jobs && bytes + size <= batch_bytes;
            if now.saturating_duration_since(push.since) >= timeout {
                push.answer(Err(NotPublished::Late));
            } else if !batch.is_empty() && !fits {
                line.waiting.push_front(push);
                break;
            } else {
                pushes += more;
                bytes += size;
                batch.push(push);
            }
            line.pushes -= more;
            line.bytes -= size;
        }
        batch
    }
}

impl std::fmt::Debug for WaitingRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitingRoom").field("settings", &self.settings).finish_non_exhaustive()
    }
}
