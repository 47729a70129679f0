//! Who uses the index first: what is sent at once (interactive) goes before partitions of
//! broadcasts (bulk).
//!
//! The index serves one request after the other, so a small push waits behind each request of a
//! partition that is there already. So the task lane has only so many in work, and before each of
//! them lets the job lane finish what it has begun. Not for long, because a worker that many small
//! pushes keep busy must get on with its broadcasts too: with the usual 5 ms it still reads or
//! saves 200 batches a second, more than a broker of push connections takes.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Bounds of the task lane's use of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkLimits {
    /// Requests in work at once.
    pub requests: usize,
    /// How long each of them waits at most for the job lane.
    pub yields: Duration,
}

/// The two lanes of one worker.
#[derive(Debug)]
pub(crate) struct IndexPriority {
    permits: Semaphore,
    yields: Duration,
    /// How many envelopes of the job lane are in work.
    interactive: watch::Sender<usize>,
}

/// An envelope of the job lane in work, until it is dropped.
pub(crate) struct Interactive<'a>(&'a watch::Sender<usize>);

impl IndexPriority {
    pub(crate) fn new(limits: BulkLimits) -> Self {
        Self {
            permits: Semaphore::new(limits.requests),
            yields: limits.yields,
            interactive: watch::Sender::new(0),
        }
    }

    /// The job lane begins an envelope.
    pub(crate) fn interactive(&self) -> Interactive<'_> {
        self.interactive.send_modify(|count| *count += 1);
        Interactive(&self.interactive)
    }

    /// Waits until the task lane may ask the index. Without a permit when the worker stops: while
    /// the index is away, partitions must not each wait for its time-out in turn.
    pub(crate) async fn bulk(&self, stopping: &CancellationToken) -> Option<SemaphorePermit<'_>> {
        let may = async {
            let permit = self.permits.acquire().await.ok();
            let mut interactive = self.interactive.subscribe();
            // The end of the time and the end of the work mean the same.
            let _ = timeout(self.yields, interactive.wait_for(|count| *count == 0)).await;
            permit
        };
        stopping.run_until_cancelled(may).await.flatten()
    }
}

impl Drop for Interactive<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const YIELDS: Duration = Duration::from_millis(6);

    #[tokio::test(start_paused = true)]
    async fn a_partition_waits_for_interactive_pushes_but_not_for_long() {
        let priority = IndexPriority::new(BulkLimits { requests: 1, yields: YIELDS });
        let stopping = CancellationToken::new();
        let begun = Instant::now();
        assert!(priority.bulk(&stopping).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO, "no push is in the way");

        let interactive = priority.interactive();
        let (permit, ()) = tokio::join!(priority.bulk(&stopping), async {
            tokio::time::sleep(YIELDS / 2).await;
            drop(interactive);
        });
        assert!(permit.is_some());
        assert_eq!(begun.elapsed(), YIELDS / 2);
        drop(permit);

        let _interactive = priority.interactive();
        assert!(priority.bulk(&stopping).await.is_some());
        assert_eq!(begun.elapsed(), YIELDS / 2 + YIELDS);
    }

    #[tokio::test(start_paused = true)]
    async fn partitions_take_turns_until_the_worker_stops() {
        let priority = IndexPriority::new(BulkLimits { requests: 1, yields: YIELDS });
        let stopping = CancellationToken::new();
        let permit = priority.bulk(&stopping).await;
        assert!(permit.is_some());
        let (other, ()) = tokio::join!(priority.bulk(&stopping), async { stopping.cancel() });
        assert!(other.is_none());
    }
}
