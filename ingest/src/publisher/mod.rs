//! Group commit: what is waiting goes to the queue as one message, and one confirm answers all
//! of its requests.
//!
//! A confirm of a durable queue costs a disk flush on several servers, and a message costs the
//! broker forty times what a push in it does, so batches want to be large. But nobody should wait
//! for company that may not come. So a batch goes as soon as it is as large as all that waits for
//! a confirm: a push that comes alone goes at once, and under load two batches take turns, each
//! with about half of the pushes that are in work. No timer is needed, because a confirm makes
//! what is wanted smaller. (Measured on two cores against batches that go as soon as fewer than
//! four are on their way: 22 pushes a message in place of 10 at 64 connections, 87 in place of 36
//! at 256.)
//!
//! A request that carries many pushes hands them over in bundles, each of which goes into one
//! envelope and takes part in all this as one push would.
//!
//! Work that gets stuck: what cannot wait is refused at once, what has waited too long is
//! answered with an error, and a failed publish answers its whole batch with an error. While the
//! broker announces that it takes nothing, every push is refused at once with the reason, those
//! among them that were on their way. An error means "not known to be stored": the caller tries
//! again. What is answered early is not taken back, and may be stored after all.

mod bundle;
mod waiting;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use push_model::envelope::{compress, encode_batch};
use push_queue::{Lane, Queue, QueueError, until_blocked};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

pub(crate) use self::bundle::{Bundle, Bundles};
use self::waiting::{Waiting, WaitingRoom};
use crate::{metrics::Metrics, settings::PublisherSettings};

/// Why a push is not known to be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPublished {
    /// As many pushes wait as may.
    #[error("too many pushes wait for the queue")]
    Full,
    /// The queue did not confirm it.
    #[error("the queue did not take the message")]
    Refused,
    /// The queue's server has announced that it takes nothing for now, and why.
    #[error("the queue takes no messages for now: {0}")]
    Blocked(Arc<str>),
    /// The queue did not confirm it in time.
    #[error("the queue did not confirm the message in time")]
    Late,
    /// The service stops.
    #[error("the service is stopping")]
    Stopping,
}

/// Hands pushes to the publisher's task.
#[derive(Debug)]
pub(crate) struct Publisher {
    room: Arc<WaitingRoom>,
    blocked: watch::Receiver<Option<Arc<str>>>,
}

/// The publisher's task, to be finished when no more pushes come.
#[derive(Debug)]
pub(crate) struct PublisherTask {
    /// None once it was seen to have ended.
    task: Option<JoinHandle<()>>,
    room: Arc<WaitingRoom>,
}

impl PublisherTask {
    /// Waits until the task ends by itself, which it never should: nothing is published then, and
    /// every push is refused.
    pub(crate) async fn failed(&mut self) {
        if let Some(task) = &mut self.task {
            let ended = task.await;
            self.task = None;
            tracing::error!(
                error = ended.err().map(tracing::field::display),
                "the publisher ended"
            );
        }
    }

    /// Publishes what waits and ends, by `deadline`. What comes later is refused. What is left
    /// then was answered to nobody, so it may be dropped. False if the task had failed.
    pub(crate) async fn finish(mut self, deadline: Instant) -> bool {
        self.room.close();
        let Some(task) = &mut self.task else { return false };
        match tokio::time::timeout_at(deadline, &mut *task).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the publisher ended");
                false
            }
            Err(_) => {
                tracing::warn!("pushes that nobody waits for were dropped at the drain deadline");
                task.abort();
                true
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
        let room = Arc::new(WaitingRoom::new(settings.clone()));
        let blocked = queue.blocked();
        let group = Group {
            queue,
            blocked: blocked.clone(),
            settings,
            metrics,
            room: Arc::clone(&room),
            in_flight: FuturesUnordered::new(),
            pushes_in_flight: 0,
        };
        let task = tokio::spawn(group.run());
        (Self { room: Arc::clone(&room), blocked }, PublisherTask { task: Some(task), room })
    }

    /// Publishes one job. Once it waits, it is published even if this future is dropped.
    pub(crate) async fn publish(
        &self,
        job: Vec<u8>,
        memory: OwnedSemaphorePermit,
    ) -> Result<(), NotPublished> {
        if let Some(reason) = &*self.blocked.borrow() {
            return Err(NotPublished::Blocked(Arc::clone(reason)));
        }
        let (answer, answered) = oneshot::channel();
        let since = Instant::now();
        self.room.enter(Waiting {
            job,
            pushes: 1,
            is_rest: false,
            since,
            _memory: Some(memory),
            answer,
        })?;
        answered.await.unwrap_or(Err(NotPublished::Stopping))
    }

    /// For at most so many pushes of one request, whose jobs have about so many bytes together.
    pub(crate) fn bundles(&self, pushes: usize, bytes: usize) -> Bundles {
        Bundles::of(pushes, bytes, self.room.settings())
    }

    /// Publishes the bundles of one request, and says of each what became of it. They enter
    /// together, and once they wait they are published even if this future is dropped. Each has
    /// its share of the memory with it.
    pub(crate) async fn publish_all(
        &self,
        bundles: Vec<(Bundle, Option<OwnedSemaphorePermit>)>,
    ) -> Vec<Result<(), NotPublished>> {
        if let Some(reason) = &*self.blocked.borrow() {
            return vec![Err(NotPublished::Blocked(Arc::clone(reason))); bundles.len()];
        }
        let since = Instant::now();
        let with_answer = |(number, (bundle, memory))| {
            let (answer, answered) = oneshot::channel();
            let Bundle { jobs, pushes } = bundle;
            let is_rest = number > 0;
            (Waiting { job: jobs, pushes, is_rest, since, _memory: memory, answer }, answered)
        };
        let bundles = bundles.into_iter().enumerate();
        let (waiting, answers): (Vec<_>, Vec<_>) = bundles.map(with_answer).unzip();
        self.room.enter_all(waiting);
        let mut outcomes = Vec::with_capacity(answers.len());
        for answered in answers {
            outcomes.push(answered.await.unwrap_or(Err(NotPublished::Stopping)));
        }
        outcomes
    }
}

/// The publisher's task.
struct Group {
    queue: Arc<dyn Queue>,
    blocked: watch::Receiver<Option<Arc<str>>>,
    settings: PublisherSettings,
    metrics: Arc<Metrics>,
    room: Arc<WaitingRoom>,
    /// Batches that wait for their confirms; each gives how many pushes it had.
    in_flight: FuturesUnordered<BoxFuture<'static, usize>>,
    pushes_in_flight: usize,
}

impl Group {
    async fn run(mut self) {
        self.metrics.queue_blocked(self.blocked.borrow_and_update().is_some());
        let mut open = true;
        while open || !self.in_flight.is_empty() {
            let wanted = self.pushes_in_flight.max(1);
            let has_place = self.in_flight.len() < self.settings.window;
            tokio::select! {
                biased;
                Some(pushes) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.pushes_in_flight -= pushes;
                }
                more = self.room.wait_for(wanted), if open && has_place => {
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
        let batch = self.room.batch();
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

impl Drop for Group {
    /// Nobody waits for a publisher that is gone.
    fn drop(&mut self) {
        self.room.dissolve();
    }
}

/// How many pushes a batch has.
fn pushes_of(batch: &[Waiting]) -> usize {
    batch.iter().map(|waiting| waiting.pushes).sum()
}

/// Publishes one batch and answers its requests.
async fn publish(
    queue: Arc<dyn Queue>,
    mut blocked: watch::Receiver<Option<Arc<str>>>,
    batch: Vec<Waiting>,
    timeout: Duration,
    metrics: Arc<Metrics>,
) {
    let begun = Instant::now();
    let pushes = pushes_of(&batch);
    let jobs: Vec<&[u8]> = batch.iter().map(|waiting| waiting.job.as_slice()).collect();
    let envelope = compress(encode_batch(&jobs));
    let bytes = envelope.len();
    let published = tokio::select! {
        biased;
        published = queue.publish(Lane::Jobs, envelope) => published,
        reason = until_blocked(&mut blocked) => Err(QueueError::Blocked(reason)),
        () = tokio::time::sleep(timeout) => {
            tracing::warn!(pushes, bytes, ?timeout, "the queue did not confirm");
            return conclude(batch, &Err(NotPublished::Late), begun, &metrics);
        }
    };
    let outcome = match published {
        Ok(()) => Ok(()),
        // The engine has logged it once.
        Err(QueueError::Blocked(reason)) => Err(NotPublished::Blocked(reason)),
        Err(error) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(pushes, bytes, error, "the queue did not take a batch");
            Err(NotPublished::Refused)
        }
    };
    conclude(batch, &outcome, begun, &metrics);
}

fn conclude(
    batch: Vec<Waiting>,
    outcome: &Result<(), NotPublished>,
    begun: Instant,
    metrics: &Metrics,
) {
    metrics.batch(pushes_of(&batch), begun.elapsed(), outcome.is_ok());
    for waiting in batch {
        waiting.answer(outcome.clone());
    }
}

#[cfg(test)]
mod tests;
