//! The tasks of a worker that run as long as it does. When one ends, for whatever reason, the
//! others are stopped: a worker that goes on with one lane, or without the bound of its ledger,
//! would look alive and not do its work.

use push_queue::QueueError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::RunError;

/// Waits until all tasks have ended. The first that ends stops the others.
///
/// # Errors
/// Why the first task failed that did.
pub(crate) async fn join(
    mut consumers: JoinSet<Result<(), QueueError>>,
    mut upkeep: JoinSet<()>,
    stopping: &CancellationToken,
) -> Result<(), RunError> {
    let mut result = Ok(());
    loop {
        let ended = tokio::select! {
            Some(ended) = consumers.join_next() => match ended {
                Ok(ended) => ended.map_err(RunError::Queue),
                Err(error) => Err(RunError::Consumer(error)),
            },
            Some(ended) = upkeep.join_next() => ended.map_err(RunError::Upkeep),
            else => return result,
        };
        stopping.cancel();
        result = result.and(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A consumer and an upkeep that end when they are told to.
    fn others(stopping: &CancellationToken) -> (JoinSet<Result<(), QueueError>>, JoinSet<()>) {
        let (mut consumers, mut upkeep) = (JoinSet::new(), JoinSet::new());
        let until_stopped = stopping.clone().cancelled_owned();
        consumers.spawn(async {
            until_stopped.await;
            Ok(())
        });
        upkeep.spawn(stopping.clone().cancelled_owned());
        (consumers, upkeep)
    }

    /// Joins the tasks, and panics if they do not end. The time is paused, so the wait costs
    /// nothing.
    async fn ended(
        (consumers, upkeep): (JoinSet<Result<(), QueueError>>, JoinSet<()>),
        stopping: &CancellationToken,
    ) -> Result<(), RunError> {
        let joined = join(consumers, upkeep, stopping);
        tokio::time::timeout(Duration::from_secs(60), joined).await.unwrap()
    }

    async fn faulty<T>() -> T {
        panic!("a fault of a part")
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_that_panics_or_is_cancelled_ends_the_worker_with_an_error_that_says_so() {
        let stopping = CancellationToken::new();
        let (mut consumers, upkeep) = others(&stopping);
        consumers.spawn(faulty());
        let error = ended((consumers, upkeep), &stopping).await.unwrap_err();
        assert!(matches!(&error, RunError::Consumer(error) if error.is_panic()), "{error:?}");
        assert!(stopping.is_cancelled());

        let stopping = CancellationToken::new();
        let (mut consumers, upkeep) = others(&stopping);
        consumers.spawn(std::future::pending()).abort();
        let error = ended((consumers, upkeep), &stopping).await.unwrap_err();
        assert!(matches!(&error, RunError::Consumer(error) if error.is_cancelled()), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upkeep_that_panics_ends_the_worker_with_an_error_that_says_so() {
        let stopping = CancellationToken::new();
        let (consumers, mut upkeep) = others(&stopping);
        upkeep.spawn(faulty());
        let error = ended((consumers, upkeep), &stopping).await.unwrap_err();
        assert!(matches!(error, RunError::Upkeep(_)), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_of_two_errors_is_the_reason_and_a_worker_that_is_told_to_stop_has_none() {
        let stopping = CancellationToken::new();
        let (mut consumers, upkeep) = others(&stopping);
        consumers.spawn(async { Err(QueueError::Closed) });
        let until_stopped = stopping.clone().cancelled_owned();
        consumers.spawn(async {
            until_stopped.await;
            faulty().await
        });
        let error = ended((consumers, upkeep), &stopping).await.unwrap_err();
        assert!(matches!(error, RunError::Queue(QueueError::Closed)), "{error:?}");

        let stopping = CancellationToken::new();
        let (consumers, upkeep) = others(&stopping);
        stopping.cancel();
        ended((consumers, upkeep), &stopping).await.unwrap();
    }
}
