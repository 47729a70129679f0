//! Waiting out an index or a queue that is away or refuses.
//!
//! A worker pauses while a server is gone and goes on when it is back; the queue message that it
//! works on stays unsettled meanwhile. Giving the message back instead would count as a failed
//! delivery, and an outage would turn healthy messages into dead letters.
//!
//! Work that gets stuck: RabbitMQ closes a channel whose delivery stays unsettled for 30 minutes.
//! So a wait for the index ends when a message was kept for [`Waiting::hold`], and the message is
//! handed on to come back later. A wait for the queue has no such end: there is nowhere else to
//! hand the message to.

use std::time::Duration;

use push_index::IndexError;
use push_queue::QueueError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Random, hold::Hold, jitter, retry::RetryPolicy};

/// Why a step was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// The worker is stopping.
    Interrupted,
    /// The index was away for as long as a message may be held.
    TooLong,
    /// Another try cannot help.
    Broken(String),
}

/// How servers that are away are waited for.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// The pauses between tries.
    pub(crate) policy: RetryPolicy,
    /// How long a message is kept.
    pub(crate) hold: Duration,
    /// Where jitter comes from.
    pub(crate) random: Random,
}

/// What a step answered in the end.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// When the try that was answered began: what it says is no older.
    pub(crate) asked_at: Instant,
}

impl Waiting {
    /// Begins to keep a queue message.
    pub(crate) fn hold<'a>(
        &self,
        is_held: &'a (dyn Fn() -> bool + Sync),
        stopping: &'a CancellationToken,
    ) -> Hold<'a> {
        Hold::new(is_held, self.hold, stopping)
    }

    /// Tries a step until the index answers. The first try is made even when the worker stops or
    /// has kept the message for long, so that a batch that was sent is saved if it can be.
    pub(crate) async fn for_index<T, F>(
        &self,
        hold: &Hold<'_>,
        step: impl Fn() -> F,
    ) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        self.for_index_in_turn(hold, || std::future::ready(()), step).await
    }

    /// The same, where each try waits for its turn: nothing is kept of it in between, or all others
    /// would wait as long as this one does.
    pub(crate) async fn for_index_in_turn<T, F, W>(
        &self,
        hold: &Hold<'_>,
        turn: impl Fn() -> W,
        step: impl Fn() -> F,
    ) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<T, IndexError>>,
        W: Future,
    {
        let mut attempt = 0;
        loop {
            let turn = turn().await;
            let asked_at = Instant::now();
            let answer = step().await;
            drop(turn);
            let error = match answer {
                Ok(value) => {
                    if attempt > 0 {
                        info!("the index answers again");
                    }
                    return Ok(Answer { value, asked_at });
                }
                Err(IndexError::Corrupt(what)) => return Err(GaveUp::Broken(what)),
                Err(error) => error,
            };
            if attempt == 0 {
                warn!(error = &error as &dyn std::error::Error, "waiting for the index");
            }
            if hold.is_over() {
                return Err(GaveUp::TooLong);
            }
            self.pause(&mut attempt, hold.stopping()).await?;
        }
    }

    /// Publishes until the queue confirms. A publish whose session has ended may be stored as well
    /// as the one that follows it.
    pub(crate) async fn for_publish<F>(
        &self,
        hold: &Hold<'_>,
        publish: impl Fn() -> F,
    ) -> Result<(), GaveUp>
    where
        F: Future<Output = Result<(), QueueError>>,
    {
        let mut attempt = 0;
        loop {
            let error = match publish().await {
                Ok(()) => return Ok(()),
                Err(QueueError::Closed) => return Err(GaveUp::Interrupted),
                Err(error) => error,
            };
            if attempt == 0 {
                warn!(error = &error as &dyn std::error::Error, "waiting for the queue");
            }
            self.pause(&mut attempt, hold.stopping()).await?;
        }
    }

    /// Opens a consumer as soon as the queue is there. A worker that just started is not worth
    /// less than one whose consumer is lost later, which comes back by itself. `None` when stopping.
    pub(crate) async fn for_consumer<T, F>(
        &self,
        stopping: &CancellationToken,
        consume: impl Fn() -> F,
    ) -> Result<Option<T>, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let mut attempt = 0;
        loop {
            match consume().await {
                Ok(consumer) => return Ok(Some(consumer)),
                Err(error @ QueueError::Unavailable(_)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "waiting for the queue to consume from");
                }
                Err(error) => return Err(error),
            }
            if self.pause(&mut attempt, stopping).await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn pause(&self, attempt: &mut u32, stopping: &CancellationToken) -> Result<(), GaveUp> {
        let pause = self.policy.delay(*attempt, jitter(&self.random));
        *attempt = attempt.saturating_add(1);
        tokio::select! {
            biased;
            () = stopping.cancelled() => Err(GaveUp::Interrupted),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use super::*;

    /// How long an answer takes.
    const ANSWER: Duration = Duration::from_millis(10);

    fn waiting() -> Waiting {
        Waiting {
            policy: RetryPolicy {
                first: Duration::from_millis(100),
                longest: Duration::from_secs(5),
            },
            hold: Duration::from_mins(10),
            random: Arc::new(|| u64::MAX),
        }
    }

    fn hold(stopping: &CancellationToken) -> Hold<'_> {
        Hold::new(&|| true, waiting().hold, stopping)
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
        let started = Instant::now();
        let answer = waiting().for_index(&hold(&CancellationToken::new()), step).await.unwrap();
        assert_eq!((answer.value, tries.get()), (7, 10));
        assert_eq!(started.elapsed(), ANSWER + Duration::from_millis(6_300 + 3 * 5_000));
        assert_eq!(answer.asked_at, Instant::now() - ANSWER, "what it says may be as old");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_is_away_for_too_long_ends_the_wait() {
        let started = Instant::now();
        let step = async || Err::<(), _>(refused());
        let gave_up =
            waiting().for_index(&hold(&CancellationToken::new()), step).await.unwrap_err();
        assert_eq!(gave_up, GaveUp::TooLong);
        assert!(started.elapsed() >= waiting().hold);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_kept_for_one_time_whatever_is_asked_for_it() {
        let (stopping, started) = (CancellationToken::new(), Instant::now());
        let hold = hold(&stopping);
        for _ in 0..100 {
            let step = async || Err::<(), _>(refused());
            let gave_up = waiting().for_index(&hold, step).await.unwrap_err();
            assert_eq!(gave_up, GaveUp::TooLong);
        }
        assert!(started.elapsed() < waiting().hold + waiting().policy.longest * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_is_tried_until_the_queue_takes_it_or_is_closed() {
        let tries = Cell::new(0);
        let publish = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(()) }
        };
        assert_eq!(waiting().for_publish(&hold(&CancellationToken::new()), publish).await, Ok(()));
        assert_eq!(tries.get(), 5);
        let closed = async || Err(QueueError::Closed);
        let gave_up = waiting().for_publish(&hold(&CancellationToken::new()), closed).await;
        assert_eq!(gave_up, Err(GaveUp::Interrupted));
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
        assert_eq!(waiting().for_publish(&hold(&CancellationToken::new()), publish).await, Ok(()));
        assert_eq!(tries.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_waits_for_a_queue_that_is_away_but_not_for_one_that_is_wrong() {
        let (tries, stopping) = (Cell::new(0), CancellationToken::new());
        let consume = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(7) }
        };
        assert_eq!(waiting().for_consumer(&stopping, consume).await.unwrap(), Some(7));
        assert_eq!(tries.get(), 5);
        let wrong = async || Err::<(), _>(QueueError::Topology("other properties".into()));
        assert!(waiting().for_consumer(&stopping, wrong).await.is_err());
        stopping.cancel();
        let gone = async || Err::<(), _>(QueueError::Unavailable("gone".into()));
        assert_eq!(waiting().for_consumer(&stopping, gone).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_ends_the_wait_and_what_is_broken_is_not_tried_again() {
        let stopping = CancellationToken::new();
        stopping.cancel();
        let gave_up = waiting().for_index(&hold(&stopping), async || Err::<(), _>(unsure())).await;
        assert_eq!(gave_up.unwrap_err(), GaveUp::Interrupted);
        let broken = async || Err::<(), _>(IndexError::Corrupt("x".into()));
        let gave_up = waiting().for_index(&hold(&CancellationToken::new()), broken).await;
        assert_eq!(gave_up.unwrap_err(), GaveUp::Broken("x".into()));
    }
}
