//! The pushes that wait go to the queue as one envelope, by [group commit](push_group_commit), and
//! one confirm answers all of their requests.
//!
//! A confirm of a durable queue costs a disk flush on several servers, and an envelope costs the
//! broker forty times what a push in it does, so batches should be large. (Measured on two cores: 22
//! pushes an envelope at 64 connections and 87 at 256. If a batch goes as soon as fewer than four
//! wait for a confirm, it is 10 and 36.)
//!
//! A batch request hands its pushes over in groups. Each group goes into one envelope and is
//! otherwise treated as one push.
//!
//! Failures: a push that does not fit into the waiting room is refused immediately, one that
//! waited too long is answered with an error, and a failed publish answers its whole batch with an
//! error. While the broker announces that it takes nothing, every push is refused immediately with its
//! reason, including those whose confirm is outstanding. An error means "not known to be stored":
//! the caller tries again. A push that was answered with an error is not taken back, and may be
//! stored after all.
//!
//! - `pending_publish`: what waits, and why it may fail;
//! - `push_group`: the pushes of a batch request, joined;
//! - `batches`: the work that the pushes of an envelope share.

mod batches;
mod pending_publish;
mod push_group;

use std::sync::Arc;

use push_boot::outage::Outage;
use push_group_commit::{GroupCommit, Limits, Size};
use push_model::trace_parent::TraceParent;
use push_queue::Queue;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};

use self::{batches::Batches, pending_publish::PendingPublish};
pub(crate) use self::{
    pending_publish::NotPublished,
    push_group::{PushGroup, PushGroupBuilder},
};
use crate::{
    apps::MessagePlaces,
    body::Reservation,
    metrics::{Level, Metrics},
    settings::PublisherSettings,
};

/// Publishes pushes and waits for their answers.
#[derive(Debug)]
pub(crate) struct Publisher {
    batches: Arc<GroupCommit<Batches>>,
    blocked: watch::Receiver<Option<Arc<str>>>,
    settings: PublisherSettings,
}

impl Publisher {
    pub(crate) fn new(
        queue: Arc<dyn Queue>,
        settings: PublisherSettings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let blocked = queue.blocked();
        let limits = Limits {
            group: Size { items: settings.batch_jobs, bytes: settings.batch_bytes },
            groups: settings.window,
        };
        let batches = Arc::new(GroupCommit::new(
            limits,
            Batches {
                queue,
                blocked: blocked.clone(),
                timeout: settings.timeout,
                metrics: Arc::clone(&metrics),
                outage: Outage::of_refused_requests(),
            },
        ));
        let level = Level::new(settings.waiting, {
            // The batches hold the metrics.
            let batches = Arc::downgrade(&batches);
            move || batches.upgrade().map_or(0, |batches| batches.waiting())
        });
        // Set before only if these metrics are those of another publisher too.
        let _ = metrics.levels.waiting_pushes.set(level);
        let _ = metrics.levels.queue_blocked.set(blocked.clone());
        Self { batches, blocked, settings }
    }

    /// Publishes one job. Once it waits for its batch it is published even if this future is
    /// dropped. `memory` and `places` are held until it is answered. `trace` is what the job's spans
    /// follow.
    pub(crate) async fn publish(
        &self,
        job: Vec<u8>,
        memory: Reservation,
        places: Option<Box<MessagePlaces>>,
        trace: Option<TraceParent>,
    ) -> Result<(), NotPublished> {
        if let Some(reason) = &*self.blocked.borrow() {
            return Err(NotPublished::Blocked(Arc::clone(reason)));
        }
        let (answer, answered) = oneshot::channel();
        let pending = PendingPublish {
            jobs: job,
            pushes: 1,
            is_continuation: false,
            enqueued_at: Instant::now(),
            _memory: memory,
            places,
            trace: trace.map(Box::new),
            answer,
        };
        self.batches.enqueue([pending], self.settings.waiting);
        answer_of(answered).await
    }

    /// Returns a builder for at most `pushes` pushes of one request, whose jobs have about `bytes`
    /// bytes together.
    pub(crate) fn push_groups(&self, pushes: usize, bytes: usize) -> PushGroupBuilder {
        PushGroupBuilder::new(pushes, bytes, &self.settings)
    }

    /// Publishes the groups of one request, and returns the result of each. They are enqueued
    /// together, and once they are they are published even if this future is dropped. Each holds
    /// its share of the memory until it is answered. Groups may fill half of the places to wait, so
    /// that single pushes are accepted however many pushes come in batch requests.
    pub(crate) async fn publish_groups(
        &self,
        groups: Vec<(PushGroup, Reservation)>,
        trace: Option<TraceParent>,
    ) -> Vec<Result<(), NotPublished>> {
        if let Some(reason) = &*self.blocked.borrow() {
            return vec![Err(NotPublished::Blocked(Arc::clone(reason))); groups.len()];
        }
        let enqueued_at = Instant::now();
        let with_answer = |(index, (group, memory))| {
            let (answer, answered) = oneshot::channel();
            let PushGroup { jobs, pushes, places } = group;
            let is_continuation = index > 0;
            let pending = PendingPublish {
                jobs,
                pushes,
                is_continuation,
                enqueued_at,
                _memory: memory,
                places,
                trace: trace.map(Box::new),
                answer,
            };
            (pending, answered)
        };
        let groups = groups.into_iter().enumerate();
        let (pending, answers): (Vec<_>, Vec<_>) = groups.map(with_answer).unzip();
        self.batches.enqueue(pending, self.settings.max_waiting_in_groups());
        let mut results = Vec::with_capacity(answers.len());
        for answered in answers {
            results.push(answer_of(answered).await);
        }
        results
    }

    /// Publishes what waits, by `deadline`. Pushes that come later are refused. So are those that
    /// still wait at the deadline. Those whose confirm is outstanding then are given up: the
    /// connections of their clients are closed.
    pub(crate) async fn finish(&self, deadline: Instant) {
        self.batches.close();
        if timeout_at(deadline, self.batches.drained()).await.is_err() {
            let waiting = self.batches.waiting();
            tracing::warn!(
                runbook = "a-program-stops-with-work-left",
                waiting,
                "pushes without an answer were dropped at the drain deadline: those that waited \
                 and those that were being published"
            );
            self.batches.refuse_all();
        }
    }
}

/// Waits for the answer of a push. A push that is dropped without an answer is not known to be
/// stored.
async fn answer_of(
    answered: oneshot::Receiver<Result<(), NotPublished>>,
) -> Result<(), NotPublished> {
    answered.await.unwrap_or(Err(NotPublished::Refused))
}

#[cfg(test)]
mod tests;
