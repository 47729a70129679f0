//! Retrying while a store (the index or the ledger) or the queue is unavailable or refuses.
//!
//! A worker pauses while a server is unavailable, and goes on when it answers again. The queue
//! message that it works on stays unsettled meanwhile: a requeue would count as a failed delivery,
//! and an outage would turn healthy messages into dead letters.
//!
//! RabbitMQ closes a channel whose delivery stays unsettled for 30 minutes. So retrying a store
//! ends when a message was held for [`Retrier::hold`], and the message is published anew with a
//! delay. Retrying the queue has no such end, because without the queue the message cannot be
//! handed on.

use std::time::Duration;

use push_boot::{
    log_end_of_outage, log_failure,
    outage::{Outage, Waiting},
};
use push_model::causes::with_causes;
use push_queue::QueueError;
use push_store::IndexError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Random, hold::Hold, jitter, retry_policy::RetryPolicy};
use crate::metrics::StoreRetries;

/// Why retrying ended without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RetryError {
    /// The worker is stopping.
    Interrupted,
    /// A store was unavailable for as long as a message may be held.
    HoldExpired,
    /// Another try cannot help.
    Broken(String),
}

/// Retries requests to the stores and the queue.
#[derive(Clone)]
pub(crate) struct Retrier {
    /// The pauses between tries.
    pub(crate) policy: RetryPolicy,
    /// The longest time for which a message is held.
    pub(crate) hold: Duration,
    /// The source of jitter.
    pub(crate) random: Random,
    /// Counts repeated requests.
    pub(crate) retries: StoreRetries,
    /// The state of index and ledger, which are one store unless `--ledger-url` is set: available, or
    /// waited for.
    pub(crate) index_outage: Outage,
    /// The state of the queue: available, or waited for to publish or consume.
    pub(crate) queue_outage: Outage,
}

/// A store's answer to the last try.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// When that try began: the answer was true at this time or later.
    pub(crate) asked_at: Instant,
}

impl Retrier {
    /// Begins to hold a queue message.
    pub(crate) fn hold<'a>(
        &self,
        is_ours: &'a (dyn Fn() -> bool + Sync),
        stopping: &'a CancellationToken,
    ) -> Hold<'a> {
        Hold::new(is_ours, self.hold, stopping)
    }

    /// Makes a request to the index or the ledger until it is answered. The first try is made even if the worker stops
    /// or has held the message for too long, so that a batch that was sent is saved if it can be.
    pub(crate) async fn ask_store<T, F>(
        &self,
        hold: &Hold<'_>,
        step: impl Fn() -> F,
    ) -> Result<Answer<T>, RetryError>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        self.ask_store_with_permit(hold, || std::future::ready(()), step).await
    }

    /// Like [`Self::ask_store`], but each try waits for a permit. The permit is returned between
    /// tries, because all other requests would otherwise wait as long as this one does.
    pub(crate) async fn ask_store_with_permit<T, F, W>(
        &self,
        hold: &Hold<'_>,
        permit: impl Fn() -> W,
        step: impl Fn() -> F,
    ) -> Result<Answer<T>, RetryError>
    where
        F: Future<Output = Result<T, IndexError>>,
        W: Future,
    {
        let (mut attempt, mut waiter) = (0, None);
        loop {
            let permit = permit().await;
            let asked_at = Instant::now();
            let answer = step().await;
            drop(permit);
            let error = match answer {
                Ok(value) => {
                    log_end("the index", &self.index_outage, waiter.take());
                    return Ok(Answer { value, asked_at });
                }
                Err(IndexError::Corrupt(what)) => return Err(RetryError::Broken(what)),
                Err(error) => error,
            };
            waiter.get_or_insert_with(|| self.index_outage.wait());
            let is_first = self.index_outage.failed(1, error.kind());
            log_failure!(
                is_first,
                runbook = "a-store-is-unreachable-or-refuses-writes",
                error = with_causes(&error),
                "waiting for the index"
            );
            if hold.is_over() {
                return Err(RetryError::HoldExpired);
            }
            self.pause(&mut attempt, hold.stopping()).await?;
            self.retries.index.inc();
        }
    }

    /// Publishes until the queue confirms. If a session ended before the confirm, the publish is
    /// repeated, and the queue may have stored both.
    pub(crate) async fn publish<F>(
        &self,
        hold: &Hold<'_>,
        publish: impl Fn() -> F,
    ) -> Result<(), RetryError>
    where
        F: Future<Output = Result<(), QueueError>>,
    {
        let (mut attempt, mut waiter) = (0, None);
        loop {
            let error = match publish().await {
                Ok(()) => {
                    log_end("the queue", &self.queue_outage, waiter.take());
                    return Ok(());
                }
                Err(QueueError::Closed) => return Err(RetryError::Interrupted),
                Err(error) => error,
            };
            waiter.get_or_insert_with(|| self.queue_outage.wait());
            let is_first = self.queue_outage.failed(1, error.kind());
            log_failure!(
                is_first,
                runbook = "rabbitmq-takes-no-messages",
                error = with_causes(&error),
                "waiting for the queue"
            );
            self.pause(&mut attempt, hold.stopping()).await?;
            self.retries.queue.inc();
        }
    }

    /// Opens a consumer as soon as the queue is available, so that a worker can start during an
    /// outage of the queue. Returns `None` when the worker stops.
    pub(crate) async fn open_consumer<T, F>(
        &self,
        stopping: &CancellationToken,
        consume: impl Fn() -> F,
    ) -> Result<Option<T>, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let (mut attempt, mut waiter) = (0, None);
        loop {
            match consume().await {
                Ok(consumer) => {
                    log_end("the queue", &self.queue_outage, waiter.take());
                    return Ok(Some(consumer));
                }
                Err(error @ QueueError::Unavailable(_)) => {
                    waiter.get_or_insert_with(|| self.queue_outage.wait());
                    let is_first = self.queue_outage.failed(1, error.kind());
                    let error = with_causes(&error);
                    log_failure!(
                        is_first,
                        runbook = "rabbitmq-takes-no-messages",
                        error,
                        "waiting for the queue to consume from"
                    );
                }
                Err(error) => return Err(error),
            }
            if self.pause(&mut attempt, stopping).await.is_err() {
                return Ok(None);
            }
            self.retries.queue.inc();
        }
    }

    async fn pause(
        &self,
        attempt: &mut u32,
        stopping: &CancellationToken,
    ) -> Result<(), RetryError> {
        let pause = self.policy.delay(*attempt, jitter(&self.random));
        *attempt = attempt.saturating_add(1);
        tokio::select! {
            biased;
            () = stopping.cancelled() => Err(RetryError::Interrupted),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

/// Logs the end of an outage if this answer ended it. `waiter` is none if the request did not wait.
fn log_end(server: &str, outage: &Outage, waiter: Option<Waiting>) {
    if let Some(ended) = waiter.map_or_else(|| outage.answered(), Waiting::answered) {
        let (for_ms, failed) = (ended.for_ms(), ended.failed);
        log_end_of_outage!(ended, for_ms, failed, "{server} answers again");
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use super::*;

    /// Duration of an answer.
    const ANSWER: Duration = Duration::from_millis(10);

    fn retrier() -> Retrier {
        Retrier {
            policy: RetryPolicy {
                first: Duration::from_millis(100),
                longest: Duration::from_secs(5),
            },
            hold: Duration::from_mins(10),
            random: Arc::new(|| u64::MAX),
            retries: StoreRetries::default(),
            index_outage: Outage::default(),
            queue_outage: Outage::default(),
        }
    }

    fn hold(stopping: &CancellationToken) -> Hold<'_> {
        Hold::new(&|| true, retrier().hold, stopping)
    }

    fn unsure() -> IndexError {
        IndexError::Unsure("the answer was lost".into())
    }

    fn refused() -> IndexError {
        IndexError::Refused("a replica".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_tried_until_the_index_is_back() {
        let tries = Cell::new(0);
        let step = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 10 {
                return Err(unsure());
            }
            tokio::time::sleep(ANSWER).await;
            Ok(7)
        };
        let (started, retrier) = (Instant::now(), retrier());
        let answer = retrier.ask_store(&hold(&CancellationToken::new()), step).await.unwrap();
        assert_eq!((answer.value, tries.get()), (7, 10));
        assert_eq!(retrier.retries.index.get(), 9);
        assert_eq!(started.elapsed(), ANSWER + Duration::from_millis(6_300 + 3 * 5_000));
        assert_eq!(answer.asked_at, Instant::now() - ANSWER, "what it says may be as old");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_is_unavailable_for_too_long_ends_the_wait() {
        let started = Instant::now();
        let step = async || Err::<(), _>(refused());
        let error = retrier().ask_store(&hold(&CancellationToken::new()), step).await.unwrap_err();
        assert_eq!(error, RetryError::HoldExpired);
        assert!(started.elapsed() >= retrier().hold);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_held_for_one_time_whatever_is_asked_for_it() {
        let (stopping, started) = (CancellationToken::new(), Instant::now());
        let hold = hold(&stopping);
        for _ in 0..100 {
            let step = async || Err::<(), _>(refused());
            let error = retrier().ask_store(&hold, step).await.unwrap_err();
            assert_eq!(error, RetryError::HoldExpired);
        }
        assert!(started.elapsed() < retrier().hold + retrier().policy.longest * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_is_tried_until_the_queue_takes_it_or_is_closed() {
        let tries = Cell::new(0);
        let publish = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(()) }
        };
        assert_eq!(retrier().publish(&hold(&CancellationToken::new()), publish).await, Ok(()));
        assert_eq!(tries.get(), 5);
        let closed = async || Err(QueueError::Closed);
        let error = retrier().publish(&hold(&CancellationToken::new()), closed).await;
        assert_eq!(error, Err(RetryError::Interrupted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_on_its_way_is_not_made_again_however_long_it_takes() {
        let tries = Cell::new(0);
        let publish = async || {
            tries.set(tries.get() + 1);
            assert_eq!(tries.get(), 1, "it was made again");
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(())
        };
        assert_eq!(retrier().publish(&hold(&CancellationToken::new()), publish).await, Ok(()));
        assert_eq!(tries.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_waits_for_a_queue_that_is_unavailable_but_not_for_one_that_is_wrong() {
        let (tries, stopping) = (Cell::new(0), CancellationToken::new());
        let consume = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(7) }
        };
        assert_eq!(retrier().open_consumer(&stopping, consume).await.unwrap(), Some(7));
        assert_eq!(tries.get(), 5);
        let wrong = async || Err::<(), _>(QueueError::Topology("other properties".into()));
        assert!(retrier().open_consumer(&stopping, wrong).await.is_err());
        stopping.cancel();
        let gone = async || Err::<(), _>(QueueError::Unavailable("gone".into()));
        assert_eq!(retrier().open_consumer(&stopping, gone).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_ends_the_wait_and_what_is_broken_is_not_tried_again() {
        let stopping = CancellationToken::new();
        stopping.cancel();
        let error = retrier().ask_store(&hold(&stopping), async || Err::<(), _>(unsure())).await;
        assert_eq!(error.unwrap_err(), RetryError::Interrupted);
        let broken = async || Err::<(), _>(IndexError::Corrupt("x".into()));
        let error = retrier().ask_store(&hold(&CancellationToken::new()), broken).await;
        assert_eq!(error.unwrap_err(), RetryError::Broken("x".into()));
    }
}
