//! The loop that takes batches from the batch queue and publishes them.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use push_boot::{log_failure, outage::Outage, traced_span, traces};
use push_model::{
    causes::with_causes,
    envelope::{compress, encode_job_envelope, first_head},
    ids::{AppId, MessageId},
};
use push_queue::{Lane, Queue, QueueError, until_blocked};
use tokio::{sync::watch, time::Instant};
use tracing::{
    Instrument as _, Span,
    field::{DisplayValue, display},
};

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
    outage: Outage,
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
            outage: Outage::of_refused_requests(),
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
        let span = publish_span(&batch, pushes);
        let (blocked, outage) = (self.blocked.clone(), self.outage.clone());
        let publish = publish(queue, blocked, batch, self.settings.timeout, metrics, outage);
        let publish = publish.instrument(span);
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

/// Counts the pushes of a batch.
fn pushes_of(batch: &[PendingPublish]) -> usize {
    batch.iter().map(|pending| pending.pushes).sum()
}

/// The span of publishing a batch: part of the trace of the first of its requests that are traced,
/// and linked to the others.
fn publish_span(batch: &[PendingPublish], pushes: usize) -> Span {
    let traced = || batch.iter().filter_map(|pending| pending.trace.as_deref().copied());
    let first = traced().next();
    let span = traced_span!(first, DEBUG, "publish", pushes, otel.kind = "producer");
    // The groups of one request have the same.
    traced().filter(|trace| Some(*trace) != first).for_each(|trace| traces::link(&span, trace));
    span
}

/// Publishes one batch and answers its requests.
async fn publish(
    queue: Arc<dyn Queue>,
    mut blocked: watch::Receiver<Option<Arc<str>>>,
    batch: Vec<PendingPublish>,
    timeout: Duration,
    metrics: Arc<Metrics>,
    outage: Outage,
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
            let (app, message_id) = first_of(&batch);
            log_failure!(
                outage.failed(pushes, "late"),
                app,
                message_id,
                pushes,
                bytes,
                ?timeout,
                "the queue did not confirm a batch, which begins with this message"
            );
            return answer_all(batch, &Err(NotPublished::Late), (bytes, begun), &metrics);
        }
    };
    let result = match published {
        Ok(()) => {
            log_end(&outage);
            Ok(())
        }
        // Not logged here: the queue engine logs the announcement once.
        Err(QueueError::Blocked(reason)) => Err(NotPublished::Blocked(reason)),
        Err(error) => {
            let is_first = outage.failed(pushes, error.kind());
            let error = with_causes(&error);
            let (app, message_id) = first_of(&batch);
            log_failure!(
                is_first,
                app,
                message_id,
                pushes,
                bytes,
                error,
                "the queue did not take a batch, which begins with this message"
            );
            Err(NotPublished::Refused)
        }
    };
    answer_all(batch, &result, (bytes, begun), &metrics);
}

/// Logs the outage that ends with a confirm, if one does.
fn log_end(outage: &Outage) {
    if let Some(ended) = outage.answered() {
        let (for_ms, pushes) = (ended.for_ms(), ended.failed);
        tracing::info!(for_ms, pushes, "the queue confirms batches again");
    }
}

/// App and message id of the first push of a batch, for the log.
fn first_of(
    batch: &[PendingPublish],
) -> (Option<DisplayValue<AppId>>, Option<DisplayValue<MessageId>>) {
    let head = batch.first().and_then(|first| first_head(&first.jobs));
    head.map(|head| (display(head.app_id), display(head.message_id))).unzip()
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
