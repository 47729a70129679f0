//! Publishing a batch: the work that its pushes share.

use std::{sync::Arc, time::Duration};

use push_boot::{log_end_of_outage, log_failure, outage::Outage, traced_span, traces};
use push_group_commit::{Refused, Size, Work};
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

use super::pending_publish::{NotPublished, PendingPublish};
use crate::metrics::Metrics;

/// Publishes batches.
pub(super) struct Batches {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) blocked: watch::Receiver<Option<Arc<str>>>,
    /// The time that a push may wait, for its batch and for its confirm.
    pub(super) timeout: Duration,
    pub(super) metrics: Arc<Metrics>,
    pub(super) outage: Outage,
}

impl Work for Batches {
    type Entry = PendingPublish;

    fn size(publish: &PendingPublish) -> Size {
        Size { items: publish.pushes, bytes: publish.jobs.len() }
    }

    fn goes_at_once(publish: &PendingPublish) -> bool {
        publish.is_continuation
    }

    fn refuse(publish: PendingPublish, why: Refused) {
        let why = match why {
            Refused::Full => NotPublished::Full,
            Refused::Closed => NotPublished::Stopping,
        };
        publish.answer(Err(why));
    }

    /// Publishes a batch and answers its requests. Pushes that waited too long are answered instead.
    async fn commit(&self, mut batch: Vec<PendingPublish>) {
        let now = Instant::now();
        let is_late = |publish: &mut PendingPublish| now - publish.enqueued_at >= self.timeout;
        for late in batch.extract_if(.., is_late) {
            late.answer(Err(NotPublished::Late));
        }
        if !batch.is_empty() {
            let span = publish_span(&batch);
            self.publish(batch).instrument(span).await;
        }
    }
}

impl Batches {
    async fn publish(&self, batch: Vec<PendingPublish>) {
        let Self { timeout, outage, .. } = self;
        let begun = Instant::now();
        let pushes = pushes_of(&batch);
        let jobs: Vec<&[u8]> = batch.iter().map(|pending| pending.jobs.as_slice()).collect();
        let envelope = compress(encode_job_envelope(&jobs));
        let bytes = envelope.len();
        let mut blocked = self.blocked.clone();
        let published = tokio::select! {
            biased;
            published = self.queue.publish(Lane::Jobs, envelope) => published,
            reason = until_blocked(&mut blocked) => Err(QueueError::Blocked(reason)),
            () = tokio::time::sleep(*timeout) => {
                let (app, message_id) = first_of(&batch);
                log_failure!(
                    outage.failed(pushes, "late"), runbook = "rabbitmq-takes-no-messages",
                    app,
                    message_id,
                    pushes,
                    bytes,
                    ?timeout,
                    "the queue did not confirm a batch, which begins with this message"
                );
                return self.answer_all(batch, &Err(NotPublished::Late), (bytes, begun));
            }
        };
        let result = match published {
            Ok(()) => {
                log_end(outage);
                Ok(())
            }
            // Not logged here: the checks of the program say it.
            Err(QueueError::Blocked(reason)) => Err(NotPublished::Blocked(reason)),
            Err(error) => {
                let is_news = outage.failed(pushes, error.kind());
                let error = with_causes(&error);
                let (app, message_id) = first_of(&batch);
                log_failure!(
                    is_news,
                    runbook = "rabbitmq-takes-no-messages",
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
        self.answer_all(batch, &result, (bytes, begun));
    }

    fn answer_all(
        &self,
        batch: Vec<PendingPublish>,
        result: &Result<(), NotPublished>,
        (bytes, begun): (usize, Instant),
    ) {
        let now = Instant::now();
        self.metrics.batch(pushes_of(&batch), bytes, now - begun, result.is_ok());
        for pending in batch {
            if result.is_ok() {
                self.metrics.confirmed(pending.pushes, now - pending.enqueued_at);
            }
            pending.answer(result.clone());
        }
    }
}

/// Counts the pushes of a batch.
fn pushes_of(batch: &[PendingPublish]) -> usize {
    batch.iter().map(|pending| pending.pushes).sum()
}

/// The span of publishing a batch: part of the trace of the first of its requests that are traced,
/// and linked to the others.
fn publish_span(batch: &[PendingPublish]) -> Span {
    let pushes = pushes_of(batch);
    let traced = || batch.iter().filter_map(|pending| pending.trace.as_deref().copied());
    let first = traced().next();
    let span = traced_span!(first, DEBUG, "publish", pushes, otel.kind = "producer");
    // The groups of one request have the same trace.
    traced().filter(|trace| Some(*trace) != first).for_each(|trace| traces::link(&span, trace));
    span
}

/// Logs the outage that ends with a confirm, if one does.
fn log_end(outage: &Outage) {
    if let Some(ended) = outage.answered() {
        let (for_ms, pushes) = (ended.for_ms(), ended.failed);
        log_end_of_outage!(ended, for_ms, pushes, "the queue confirms batches again");
    }
}

/// App and message id of the first push of a batch, for the log.
fn first_of(
    batch: &[PendingPublish],
) -> (Option<DisplayValue<AppId>>, Option<DisplayValue<MessageId>>) {
    let head = batch.first().and_then(|first| first_head(&first.jobs));
    head.map(|head| (display(head.app_id), display(head.message_id))).unzip()
}
