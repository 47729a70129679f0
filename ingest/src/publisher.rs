//! Group commit: what is waiting goes to the queue as one message, and one confirm answers all
//! of its requests.
//!
//! A confirm of a durable queue costs a disk flush on several servers, however much it confirms.
//! So while a bounded window of messages waits for confirms, the next batch grows; a push that
//! comes alone finds the window open and goes at once.
//!
//! Work that gets stuck: what cannot wait is refused at once, what has waited too long is
//! answered with an error, and a failed publish answers its whole batch with an error. An error
//! means "not known to be stored": the caller tries again.

use std::{sync::Arc, time::Duration};

use push_shared::{
    envelope::encode_batch,
    queue::{Lane, Queue},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, settings::PublisherSettings};

/// Why a push is not known to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPublished {
    /// As many pushes wait as may.
    #[error("too many pushes wait for the queue")]
    Full,
    /// The queue did not confirm it.
    #[error("the queue did not take the message")]
    Refused,
    /// The queue did not confirm it in time.
    #[error("the queue did not confirm the message in time")]
    Late,
    /// The service stops.
    #[error("the service is stopping")]
    Stopping,
}

/// A push on its way.
struct Waiting {
    job: Vec<u8>,
    since: Instant,
    /// The share of the body memory that this push holds until it is answered.
    _memory: OwnedSemaphorePermit,
    answer: oneshot::Sender<Result<(), NotPublished>>,
}

impl Waiting {
    fn answer(self, outcome: Result<(), NotPublished>) {
        // The request may be gone: its client hung up. The push stands all the same.
        let _ = self.answer.send(outcome);
    }
}

/// Hands pushes to the publisher's task.
#[derive(Debug)]
pub(crate) struct Publisher {
    waiting: mpsc::Sender<Waiting>,
}

/// The publisher's task, to be finished when no more pushes come.
#[derive(Debug)]
pub(crate) struct PublisherTask {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl PublisherTask {
    /// Publishes what waits and ends, by `deadline`. What comes later is refused. What is left
    /// then was answered to nobody, so it may be dropped.
    pub(crate) async fn finish(mut self, deadline: Instant) {
        self.stop.cancel();
        match tokio::time::timeout_at(deadline, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the publisher ended badly"),
            Err(_) => {
                tracing::warn!("pushes that nobody waits for were dropped at the drain deadline");
                self.task.abort();
            }
        }
    }
}

impl Publisher {
    /// Starts the publisher's task.
    pub(crate) fn start(
        queue: Arc<dyn Queue>,
        settings: PublisherSettings,
        metrics: Arc<Metrics>,
    ) -> (Self, PublisherTask) {
        let (sender, receiver) = mpsc::channel(settings.waiting);
        let stop = CancellationToken::new();
        let group = Group {
            queue,
            window: Arc::new(Semaphore::new(settings.window)),
            settings,
            metrics,
            receiver,
            left_over: None,
        };
        let task = tokio::spawn(group.run(stop.clone()));
        (Self { waiting: sender }, PublisherTask { task, stop })
    }

    /// Publishes one job. Once it waits, it is published even if this future is dropped.
    pub(crate) async fn publish(
        &self,
        job: Vec<u8>,
        memory: OwnedSemaphorePermit,
    ) -> Result<(), NotPublished> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { job, since: Instant::now(), _memory: memory, answer };
        self.waiting.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotPublished::Full,
            mpsc::error::TrySendError::Closed(_) => NotPublished::Stopping,
        })?;
        answered.await.unwrap_or(Err(NotPublished::Stopping))
    }
}

/// The publisher's task.
struct Group {
    queue: Arc<dyn Queue>,
    settings: PublisherSettings,
    metrics: Arc<Metrics>,
    receiver: mpsc::Receiver<Waiting>,
    /// Received, but too large for the batch that was being gathered.
    left_over: Option<Waiting>,
    window: Arc<Semaphore>,
}

impl Group {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            // The place in the window comes first: while there is none, the next batch grows.
            let Ok(place) = Arc::clone(&self.window).acquire_owned().await else { return };
            let first = match self.left_over.take() {
                Some(waiting) => Some(waiting),
                None => tokio::select! {
                    biased;
                    waiting = self.receiver.recv() => waiting,
                    () = stop.cancelled() => {
                        // Closed to new pushes; those that wait are still received.
                        self.receiver.close();
                        self.receiver.recv().await
                    }
                },
            };
            let Some(first) = first else { break };
            let batch = self.gather(first);
            if !batch.is_empty() {
                let publish = publish(
                    Arc::clone(&self.queue),
                    batch,
                    self.settings.timeout,
                    Arc::clone(&self.metrics),
                );
                tokio::spawn(async move {
                    publish.await;
                    drop(place);
                });
            }
        }
        // Every place back: every batch is answered. The window has at most 1024 places.
        let places = u32::try_from(self.settings.window).unwrap_or(u32::MAX);
        let _ = self.window.acquire_many(places).await;
    }

    /// Takes what waits besides `first`, within the bounds of a batch.
    fn gather(&mut self, first: Waiting) -> Vec<Waiting> {
        let mut batch = Vec::with_capacity(self.receiver.len().min(self.settings.batch_jobs) + 1);
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(waiting) = next {
            if waiting.since.elapsed() >= self.settings.timeout {
                waiting.answer(Err(NotPublished::Late));
            } else if !batch.is_empty() && bytes + waiting.job.len() > self.settings.batch_bytes {
                self.left_over = Some(waiting);
                break;
            } else {
                bytes += waiting.job.len();
                batch.push(waiting);
                if batch.len() >= self.settings.batch_jobs {
                    break;
                }
            }
            next = self.receiver.try_recv().ok();
        }
        batch
    }
}

/// Publishes one batch and answers its requests.
async fn publish(
    queue: Arc<dyn Queue>,
    batch: Vec<Waiting>,
    timeout: Duration,
    metrics: Arc<Metrics>,
) {
    let begun = Instant::now();
    let jobs: Vec<&[u8]> = batch.iter().map(|waiting| waiting.job.as_slice()).collect();
    let envelope = encode_batch(&jobs);
    let bytes = envelope.len();
    let outcome = match tokio::time::timeout(timeout, queue.publish(Lane::Jobs, envelope)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(pushes = batch.len(), bytes, error, "the queue did not take a batch");
            Err(NotPublished::Refused)
        }
        Err(_) => {
            tracing::warn!(pushes = batch.len(), bytes, ?timeout, "the queue did not confirm");
            Err(NotPublished::Late)
        }
    };
    metrics.batch(batch.len(), begun.elapsed(), outcome.is_ok());
    for waiting in batch {
        waiting.answer(outcome);
    }
}

#[cfg(test)]
mod tests;
