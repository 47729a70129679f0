//! A connection's place in its pool, as its driver sees it.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{End, liveness::Usage};
use crate::pool::Pool;

/// The place of one connection in a pool. It does not keep the pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pool: Weak<Pool>,
    pub(crate) id: u64,
    pub(crate) wake: Arc<Notify>,
    pub(crate) cancel: CancellationToken,
}

impl Member {
    /// Its use now; `None` if the pool is gone.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.pool.upgrade()?.usage(self.id)
    }

    /// Tells the pool that the server changed the limit of requests at a time.
    pub(crate) fn limit(&self, stated: usize) {
        if let Some(pool) = self.pool.upgrade() {
            pool.limit_changed(self.id, stated);
        }
    }

    /// Takes it out of use: requests in flight go on, new ones go elsewhere.
    pub(crate) fn retire(&self, end: End) {
        if let Some(pool) = self.pool.upgrade() {
            pool.retire(self.id, end);
        }
    }

    /// Waits until its use has changed.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Waits until the service stops.
    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}
