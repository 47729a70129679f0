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

/// A push on its way.
pub(super) struct Waiting {
    pub(super) job: Vec<u8>,
    pub(super) since: Instant,
    /// The share of the body memory that this push holds until it is answered.
    pub(super) _memory: OwnedSemaphorePermit,
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
    pushes: VecDeque<Waiting>,
    /// Of the jobs of all of them.
    bytes: usize,
    /// How many the publisher waits for, if it waits.
    wanted: Option<usize>,
    open: bool,
}

impl WaitingRoom {
    pub(super) fn new(settings: PublisherSettings) -> Self {
        let line = Line { pushes: VecDeque::new(), bytes: 0, wanted: None, open: true };
        Self { settings, line: Mutex::new(line), enough: Notify::new() }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place at the end of the line, if there is one.
    pub(super) fn enter(&self, push: Waiting) -> Result<(), NotPublished> {
        let mut line = self.line();
        if !line.open {
            return Err(NotPublished::Stopping);
        }
        if line.pushes.len() >= self.settings.waiting {
            return Err(NotPublished::Full);
        }
        line.bytes += push.job.len();
        line.pushes.push_back(push);
        if line.wanted.is_some_and(|wanted| self.has(&line, wanted)) {
            line.wanted = None;
            drop(line);
            self.enough.notify_one();
        }
        Ok(())
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
        line.pushes.clear();
    }

    /// Waits until so many wait, or as many as one batch can hold, or the room is closed. False
    /// if it is closed and empty.
    pub(super) async fn wait_for(&self, wanted: usize) -> bool {
        loop {
            {
                let mut line = self.line();
                if !line.open || self.has(&line, wanted) {
                    line.wanted = None;
                    return !line.pushes.is_empty();
                }
                line.wanted = Some(wanted);
            }
            // What was told in between is kept for this.
            self.enough.notified().await;
        }
    }

    fn has(&self, line: &Line, wanted: usize) -> bool {
        line.pushes.len() >= wanted.min(self.settings.batch_jobs)
            || line.bytes >= self.settings.batch_bytes
    }

    /// The next batch, within its bounds. Those who waited too long are answered instead.
    pub(super) fn batch(&self) -> Vec<Waiting> {
        let PublisherSettings { batch_jobs, batch_bytes, timeout, .. } = self.settings;
        let now = Instant::now();
        let mut line = self.line();
        let mut batch = Vec::with_capacity(line.pushes.len().min(batch_jobs));
        let mut bytes = 0;
        while batch.len() < batch_jobs
            && let Some(push) = line.pushes.pop_front()
        {
            let size = push.job.len();
            if now.saturating_duration_since(push.since) >= timeout {
                push.answer(Err(NotPublished::Late));
            } else if !batch.is_empty() && bytes + size > batch_bytes {
                line.pushes.push_front(push);
                break;
            } else {
                bytes += size;
                batch.push(push);
            }
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
