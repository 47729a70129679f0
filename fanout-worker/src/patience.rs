//! Waiting out an index or a queue that is away.
//!
//! Workers pause while a server is gone and go on when it is back; the message they hold stays
//! undecided meanwhile. It is not given back: that would count as a failed delivery, and an
//! outage would turn healthy messages into dead letters. Only the queue's own time limit for
//! undecided messages, or the end of the worker, ends the wait.

use std::time::Duration;

use push_shared::{index::IndexError, queue::QueueError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Why a step was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// The worker is stopping.
    Interrupted,
    /// Another try cannot help.
    Broken(String),
}

/// The pauses between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The first pause; doubled each time.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Patience {
    /// Tries a step until the index answers. `unsure` in the result tells that an earlier try
    /// failed in a way that may have taken effect.
    pub(crate) async fn try_until<T, F>(
        &self,
        stopping: &CancellationToken,
        step: impl Fn() -> F,
    ) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        let mut pause = self.first;
        let mut unsure = false;
        loop {
            let error = match step().await {
                Ok(value) => {
                    if unsure {
                        info!("the index answers again");
                    }
                    return Ok(Answer { value, unsure });
                }
                Err(IndexError::Corrupt(what)) => return Err(GaveUp::Broken(what)),
                Err(error @ IndexError::Unavailable(_)) => error,
            };
            if !unsure {
                warn!(error = &error as &dyn std::error::Error, "waiting for the index");
            }
            unsure = true;
            self.rest(&mut pause, stopping).await?;
        }
    }

    /// Publishes until the queue confirms. What was published by an earlier try whose confirm
    /// was lost is there twice then, which is harmless.
    pub(crate) async fn publish_until<F>(
        &self,
        stopping: &CancellationToken,
        publish: impl Fn() -> F,
    ) -> Result<(), GaveUp>
    where
        F: Future<Output = Result<(), QueueError>>,
    {
        let mut pause = self.first;
        let mut waited = false;
        loop {
            let error = match publish().await {
                Ok(()) => return Ok(()),
                Err(QueueError::Closed) => return Err(GaveUp::Interrupted),
                Err(error) => error,
            };
            if !waited {
                warn!(error = &error as &dyn std::error::Error, "waiting for the queue");
            }
            waited = true;
            self.rest(&mut pause, stopping).await?;
        }
    }

    /// Opens a consumer as soon as the queue is there. A worker that just started is not worth
    /// less than one whose consumer is lost later, which comes back by itself. `None` when stopping.
    pub(crate) async fn consume_until<T, F>(
        &self,
        stopping: &CancellationToken,
        consume: impl Fn() -> F,
    ) -> Result<Option<T>, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let mut pause = self.first;
        loop {
            match consume().await {
                Ok(consumer) => return Ok(Some(consumer)),
                Err(error @ QueueError::Unavailable(_)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "waiting for the queue to consume from");
                }
                Err(error) => return Err(error),
            }
            if self.rest(&mut pause, stopping).await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn rest(&self, pause: &mut Duration, stopping: &CancellationToken) -> Result<(), GaveUp> {
        tokio::select! {
            biased;
            () = stopping.cancelled() => Err(GaveUp::Interrupted),
            () = tokio::time::sleep(*pause) => {
                *pause = (*pause * 2).min(self.longest);
                Ok(())
            }
        }
    }
}

/// What a step answered in the end.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) unsure: bool,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PATIENCE: Patience =
        Patience { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

    fn away() -> IndexError {
        IndexError::Unavailable("gone".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_tried_until_the_index_is_back() {
        let tries = Cell::new(0);
        let step = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 10 { Err(away()) } else { Ok(7) }
        };
        let started = tokio::time::Instant::now();
        let answer = PATIENCE.try_until(&CancellationToken::new(), step).await.unwrap();
        assert_eq!((answer.value, answer.unsure, tries.get()), (7, true, 10));
        assert_eq!(started.elapsed(), Duration::from_millis(6_300 + 3 * 5_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_is_tried_until_the_queue_takes_it_or_is_closed() {
        let tries = Cell::new(0);
        let publish = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(()) }
        };
        assert_eq!(PATIENCE.publish_until(&CancellationToken::new(), publish).await, Ok(()));
        assert_eq!(tries.get(), 5);
        let closed = async || Err(QueueError::Closed);
        let gave_up = PATIENCE.publish_until(&CancellationToken::new(), closed).await;
        assert_eq!(gave_up, Err(GaveUp::Interrupted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_waits_for_a_queue_that_is_away_but_not_for_one_that_is_wrong() {
        let (tries, stopping) = (Cell::new(0), CancellationToken::new());
        let consume = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 5 { Err(QueueError::Unavailable("gone".into())) } else { Ok(7) }
        };
        assert_eq!(PATIENCE.consume_until(&stopping, consume).await.unwrap(), Some(7));
        assert_eq!(tries.get(), 5);
        let wrong = async || Err::<(), _>(QueueError::Topology("other properties".into()));
        assert!(PATIENCE.consume_until(&stopping, wrong).await.is_err());
        stopping.cancel();
        let gone = async || Err::<(), _>(QueueError::Unavailable("gone".into()));
        assert_eq!(PATIENCE.consume_until(&stopping, gone).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_ends_the_wait_and_what_is_broken_is_not_tried_again() {
        let stopping = CancellationToken::new();
        stopping.cancel();
        let gave_up = PATIENCE.try_until(&stopping, async || Err::<(), _>(away())).await;
        assert_eq!(gave_up.unwrap_err(), GaveUp::Interrupted);
        let broken = async || Err::<(), _>(IndexError::Corrupt("x".into()));
        let gave_up = PATIENCE.try_until(&CancellationToken::new(), broken).await;
        assert_eq!(gave_up.unwrap_err(), GaveUp::Broken("x".into()));
    }
}
