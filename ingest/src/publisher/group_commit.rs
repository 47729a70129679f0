//! The loop that takes batches from the batch queue and publishes them.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use push_model::envelope::{compress, encode_job_envelope};
use push_queue::{Lane, Queue, QueueError, until_blocked};
use tokio::{sync::watch, time::Instant};

use super::{
    batch_queue::BatchQueue,
    pending_publish::{NotPublished, PendingPublish},
};
use crate::{metrics::Metrics, settings::PublisherSettings};

/// The state of the loop.
pub(super) struct PublishLoop {
    queue: Arc<dyn Queue>,
    batch_queue: Arc<BatchQueue>,
    blocked: watch::Receiver<Option<Arc<str>>>,
    settings: PublisherSettings,
    metrics: Arc<Metrics>,
    /// The batches that wait for their confirms. Each future gives how many pushes its batch had.
    in_flight: FuturesUnordered<BoxFuture<'static, usize>>,
    pushes_in_flight: usize,
}

impl PublishLoop {
    pub(super) fn new(
        queue: Arc<dyn Queue>,
        batch_queue: Arc<BatchQueue>,
        blocked: watch::Receiver<Option<Arc<str>>>,
        settings: PublisherSettings,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            queue,
            batch_queue,
            blocked,
            settings,
            metrics,
            in_flight: FuturesUnordered::new(),
            pushes_in_flight: 0,
        }
    }

    /// Runs until the batch queue is closed and everything in it is published and answered.
    pub(super) async fn run(mut self) {
        self.metrics.queue_blocked(self.blocked.borrow_and_update().is_some());
        let mut open = true;
        while open || !self.in_flight.is_empty() {
            let wanted = self.pushes_in_flight.max(1);
            let may_send = self.in_flight.len() < self.settings.window;
            tokio::select! {
                biased;
                Some(pushes) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.pushes_in_flight -= pushes;
                }
                more = self.batch_queue.wait_for(wanted), if open && may_send => {
                    open = more;
                    self.send();
                }
                Ok(()) = self.blocked.changed() => {
                    let blocked = self.blocked.borrow_and_update().is_some();
                    self.metrics.queue_blocked(blocked);
                }
            }
        }
    }

    fn send(&mut self) {
        let batch = self.batch_queue.take_batch();
        let pushes = pushes_of(&batch);
        if pushes == 0 {
            return;
        }
        let (queue, metrics) = (Arc::clone(&self.queue), Arc::clone(&self.metrics));
        let publish = publish(queue, self.blocked.clone(), batch, self.settings.timeout, metrics);
        self.in_flight.push(publish.map(move |()| pushes).boxed());
        self.pushes_in_flight += pushes;
    }
}

impl Drop for PublishLoop {
    /// Also after a panic: without the loop, a push that waits would never be answered.
    fn drop(&mut self) {
        self.batch_queue.fail_all();
    }
}

/// How many pushes a batch has.
fn pushes_of(batch: &[PendingPublish]) -> usize {
    batch.iter().map(|pending| pending.pushes).sum()
}

/// Publishes one batch and answers its requests.
async fn publish(
    queue: Arc<dyn Queue>,
    mut blocked: watch::Receiver<Option<Arc<str>>>,
    batch: Vec<PendingPublish>,
    timeout: Duration,
    metrics: Arc<Metrics>,
) {
    let begun = Instant::now();
    let pushes = pushes_of(&batch);
    let jobs: Vec<&[u8]> = batch.iter().map(|pending| pending.jobs.as_slice()).collect();
    let envelope = compress(encode_job_envelope(&jobs));
    let bytes = envelope.len();
    let published = tokio::select! {
        biased;
        published = queue.publish(Lane::Jobs, envelope) => published,
        reason = until_blocked(&mut blocked) => Err(QueueError::Blocked(reason)),
        () = tokio::time::sleep(timeout) => {
            tracing::warn!(pushes, bytes, ?timeout, "the queue did not confirm");
            return answer_all(batch, &Err(NotPublished::Late), (bytes, begun), &metrics);
        }
    };
    let result = match published {
        Ok(()) => Ok(()),
        // Not logged here: the queue engine logs the announcement once.
        Err(QueueError::Blocked(reason)) => Err(NotPublished::Blocked(reason)),
        Err(error) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(pushes, bytes, error, "the queue did not take a batch");
            Err(NotPublished::Refused)
        }
    };
    answer_all(batch, &result, (bytes, begun), &metrics);
}

fn answer_all(
    batch: Vec<PendingPublish>,
    result: &Result<(), NotPublished>,
    (bytes, begun): (usize, Instant),
    metrics: &Metrics,
) {
    let now = Instant::now();
    metrics.batch(pushes_of(&batch), bytes, now - begun, result.is_ok());
    for pending in batch {
        if result.is_ok() {
            metrics.confirmed(pending.pushes, now - pending.enqueued_at);
        }
        pending.answer(result.clone());
    }
}
