//! Who may use the index: what is sent at once goes before slices of broadcasts.
//!
//! The index serves one request after the other, so a small push waits behind each request of a
//! slice that is there already. So the task lane has only so many in work, and before each of them
//! lets the job lane finish what it has begun. Not for long, because a worker that many small
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
pub(crate) struct RightOfWay {
    places: Semaphore,
    yields: Duration,
    /// How many envelopes of the job lane are in work.
    small: watch::Sender<usize>,
}

/// An envelope of the job lane in work, until it is dropped.
pub(crate) struct Small<'a>(&'a watch::Sender<usize>);

impl RightOfWay {
    pub(crate) fn new(limits: BulkLimits) -> Self {
        Self {
            places: Semaphore::new(limits.requests),
            yields: limits.yields,
            small: watch::Sender::new(0),
        }
    }

    /// The job lane begins an envelope.
    pub(crate) fn small(&self) -> Small<'_> {
        self.small.send_modify(|small| *small += 1);
        Small(&self.small)
    }

    /// Waits until the task lane may ask the index. Without a place when the worker stops: while
    /// the index is away, slices must not each wait for its time-out in turn.
    pub(crate) async fn bulk(&self, stopping: &CancellationToken) -> Option<SemaphorePermit<'_>> {
        let may = async {
            let place = self.places.acquire().await.ok();
            let mut small = self.small.subscribe();
            // The end of the time and the end of the work mean the same.
            let _ = timeout(self.yields, small.wait_for(|small| *small == 0)).await;
            place
        };
        stopping.run_until_cancelled(may).await.flatten()
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|small| *small -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const YIELDS: Duration = Duration::from_millis(6);

    #[tokio::test(start_paused = true)]
    async fn a_slice_waits_for_small_pushes_but_not_for_long() {
        let way = RightOfWay::new(BulkLimits { requests: 1, yields: YIELDS });
        let stopping = CancellationToken::new();
        let begun = Instant::now();
        assert!(way.bulk(&stopping).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO, "nobody is in the way");

        let small = way.small();
        let (place, ()) = tokio::join!(way.bulk(&stopping), async {
            tokio::time::sleep(YIELDS / 2).await;
            drop(small);
        });
        assert!(place.is_some());
        assert_eq!(begun.elapsed(), YIELDS / 2);
        drop(place);

        let _small = way.small();
        assert!(way.bulk(&stopping).await.is_some());
        assert_eq!(begun.elapsed(), YIELDS / 2 + YIELDS);
    }

    #[tokio::test(start_paused = true)]
    async fn slices_take_turns_until_the_worker_stops() {
        let way = RightOfWay::new(BulkLimits { requests: 1, yields: YIELDS });
        let stopping = CancellationToken::new();
        let place = way.bulk(&stopping).await;
        assert!(place.is_some());
        let (other, ()) = tokio::join!(way.bulk(&stopping), async { stopping.cancel() });
        assert!(other.is_none());
    }
}
