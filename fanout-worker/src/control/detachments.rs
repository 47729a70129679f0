//! The runs of a worker that go on without their queue messages, and the room that there is for
//! them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

/// The most runs that are detached at a time. More are waited for with their queue messages.
const MOST_DETACHED: usize = 256;

/// The detached runs of a worker.
#[derive(Debug)]
pub(crate) struct Detachments {
    free: Arc<Semaphore>,
    running: TaskTracker,
}

impl Default for Detachments {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MOST_DETACHED)), running: TaskTracker::new() }
    }
}

impl Detachments {
    /// Takes room for one run. Returns none if there is no room.
    pub(crate) fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Goes on with a run in the background.
    pub(crate) fn spawn(&self, run: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(run);
    }

    /// Waits until all runs have ended.
    pub(crate) async fn finished(&self) {
        self.running.close();
        self.running.wait().await;
    }
}
