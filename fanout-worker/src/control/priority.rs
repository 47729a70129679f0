//! Index priority: the job lane (interactive) asks the index before the task lane (bulk).
//!
//! The index serves one request after the other, so a push of the job lane waits behind every
//! earlier request of a broadcast's partition. So the task lane makes only
//! [`requests`](BulkLimits::requests) concurrently, and lets the job lane finish its work in hand
//! before each of them. It waits for at most [`yields`](BulkLimits::yields), because a worker that
//! is busy with small pushes must also get on with its broadcasts: with the default of 5 ms it
//! still reads or saves 200 batches a second, more than an MQTT broker takes.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Bounds of the task lane's use of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkLimits {
    /// The most concurrent requests of the task lane.
    pub requests: usize,
    /// The longest time for which each of them waits for the job lane.
    pub yields: Duration,
}

/// The order in which a worker's requests reach the index.
#[derive(Debug)]
pub(crate) struct IndexPriority {
    permits: Semaphore,
    yields: Duration,
    /// The number of the job lane's envelopes in work.
    interactive: watch::Sender<usize>,
}

/// Counts an envelope of the job lane as in work until it is dropped.
pub(crate) struct Interactive<'a>(&'a watch::Sender<usize>);

impl IndexPriority {
    pub(crate) fn new(limits: BulkLimits) -> Self {
        Self {
            permits: Semaphore::new(limits.requests),
            yields: limits.yields,
            interactive: watch::Sender::new(0),
        }
    }

    /// Called when the job lane begins an envelope.
    pub(crate) fn interactive(&self) -> Interactive<'_> {
        self.interactive.send_modify(|count| *count += 1);
        Interactive(&self.interactive)
    }

    /// Waits until the task lane may ask the index. Returns `None` when the worker stops, so that
    /// partitions do not wait one after the other for the time-outs of an unavailable index. The
    /// caller makes its request in either case.
    pub(crate) async fn bulk(&self, stopping: &CancellationToken) -> Option<SemaphorePermit<'_>> {
        let may = async {
            let permit = self.permits.acquire().await.ok();
            let mut interactive = self.interactive.subscribe();
            // The request may be made after the time-out, or as soon as the job lane is idle.
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
