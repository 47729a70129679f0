//! Group commit: the pushes that wait go to the queue as one envelope, and one confirm answers all
//! of their requests.
//!
//! A confirm of a durable queue costs a disk flush on several servers, and an envelope costs the
//! broker forty times what a push in it does, so batches should be large. But a push should not
//! wait for others that may not come. So a batch is sent as soon as it is as large as all batches
//! that wait for a confirm: a lone push goes immediately, and under load two batches take turns, each
//! with about half of the pushes in work. No timer is needed, because each confirm lowers the size
//! that is waited for. (Measured on two cores: 22 pushes an envelope at 64 connections and 87 at
//! 256. If a batch goes as soon as fewer than four wait for a confirm, it is 10 and 36.)
//!
//! A batch request hands its pushes over in groups. Each group goes into one envelope and is
//! otherwise treated as one push.
//!
//! Work that gets stuck: a push that does not fit into the batch queue is refused immediately, one that
//! waited too long is answered with an error, and a failed publish answers its whole batch with an
//! error. While the broker announces that it takes nothing, every push is refused immediately with its
//! reason, including those whose confirm is outstanding. An error means "not known to be stored":
//! the caller tries again. A push that was answered with an error is not taken back, and may be
//! stored after all.
//!
//! - `pending_publish`: what waits, and why it may fail;
//! - `batch_queue`: where it waits for its envelope;
//! - `push_group`: the pushes of a batch request, joined;
//! - `group_commit`: the loop that sends the batches.

mod batch_queue;
mod group_commit;
mod pending_publish;
mod push_group;

use std::{sync::Arc, time::Duration};

use push_model::trace_parent::TraceParent;
use push_queue::Queue;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

use self::{batch_queue::BatchQueue, group_commit::PublishLoop, pending_publish::PendingPublish};
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

/// Hands pushes to the loop and waits for their answers.
#[derive(Debug)]
pub(crate) struct Publisher {
    queue: Arc<BatchQueue>,
    blocked: watch::Receiver<Option<Arc<str>>>,
}

impl Publisher {
    /// Starts the loop.
    pub(crate) fn start(
        queue: Arc<dyn Queue>,
        settings: PublisherSettings,
        metrics: Arc<Metrics>,
    ) -> (Self, PublisherJoinHandle) {
        let batch_queue = Arc::new(BatchQueue::new(settings.clone()));
        let level = Level::new(settings.waiting, {
            let queue = Arc::clone(&batch_queue);
            move || queue.waiting()
        });
        // Set before only if these metrics are those of another publisher too.
        let _ = metrics.levels.waiting_pushes.set(level);
        let blocked = queue.blocked();
        let publish_loop =
            PublishLoop::new(queue, Arc::clone(&batch_queue), blocked.clone(), settings, metrics);
        let join = PublisherJoinHandle {
            publish_loop: Some(tokio::spawn(publish_loop.run())),
            queue: Arc::clone(&batch_queue),
        };
        (Self { queue: batch_queue, blocked }, join)
    }

    /// Publishes one job. Once it is in the batch queue it is published even if this future is
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
        let enqueued_at = Instant::now();
        self.queue.enqueue(PendingPublish {
            jobs: job,
            pushes: 1,
            is_continuation: false,
            enqueued_at,
            _memory: memory,
            places,
            trace: trace.map(Box::new),
            answer,
        })?;
        answered.await.unwrap_or(Err(NotPublished::Stopping))
    }

    /// For at most `pushes` pushes of one request, whose jobs have about `bytes` bytes together.
    pub(crate) fn push_groups(&self, pushes: usize, bytes: usize) -> PushGroupBuilder {
        PushGroupBuilder::new(pushes, bytes, self.queue.settings())
    }

    /// Publishes the groups of one request, and returns the result of each. They are enqueued
    /// together, and once they are they are published even if this future is dropped. Each holds
    /// its share of the memory until it is answered.
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
        self.queue.enqueue_groups(pending);
        let mut results = Vec::with_capacity(answers.len());
        for answered in answers {
            results.push(answered.await.unwrap_or(Err(NotPublished::Stopping)));
        }
        results
    }
}

/// The running loop, to be finished when no more pushes come.
#[derive(Debug)]
pub(crate) struct PublisherJoinHandle {
    /// None once it has ended by itself.
    publish_loop: Option<JoinHandle<()>>,
    queue: Arc<BatchQueue>,
}

/// The time that a loop with nothing left to publish has to end.
const LAST_MOMENT: Duration = Duration::from_millis(100);

impl PublisherJoinHandle {
    /// Waits until the loop ends by itself, which only a fault of this program makes it
    /// do. Nothing is published then, and every push is refused.
    pub(crate) async fn failed(&mut self) {
        if let Some(publish_loop) = &mut self.publish_loop {
            let ended = publish_loop.await;
            self.publish_loop = None;
            tracing::error!(
                error = ended.err().map(tracing::field::display),
                "the publisher ended"
            );
        }
    }

    /// Publishes what waits and ends, by `deadline`, or in [`LAST_MOMENT`] if that has passed. Pushes that come later are refused, and what
    /// is left at the deadline is dropped: it was not answered 200. Returns false if the loop had
    /// failed.
    pub(crate) async fn finish(mut self, deadline: Instant) -> bool {
        self.queue.close();
        let Some(publish_loop) = &mut self.publish_loop else { return false };
        let deadline = deadline.max(Instant::now() + LAST_MOMENT);
        match tokio::time::timeout_at(deadline, &mut *publish_loop).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the publisher ended");
                false
            }
            Err(_) => {
                let waiting = self.queue.waiting();
                tracing::warn!(
                    waiting,
                    "pushes without an answer were dropped at the drain deadline: those that waited \
                     and those that were being published"
                );
                publish_loop.abort();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
