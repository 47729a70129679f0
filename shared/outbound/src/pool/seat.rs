//! A connection's place in its pool, as its driver sees it.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Pool;
use crate::connection::{End, liveness::Usage, member::Member};

/// The place of one connection. It does not keep the pool.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) pool: Weak<Pool>,
    pub(super) id: u64,
    pub(super) wake: Arc<Notify>,
    pub(super) cancel: CancellationToken,
}

impl Member for Seat {
    fn usage(&self) -> Option<Usage> {
        self.pool.upgrade()?.usage(self.id)
    }

    fn limit(&self, stated: usize) {
        if let Some(pool) = self.pool.upgrade() {
            pool.limit_changed(self.id, stated);
        }
    }

    fn retire(&self, end: End) {
        if let Some(pool) = self.pool.upgrade() {
            pool.retire(self.id, end);
        }
    }

    async fn woken(&self) {
        self.wake.notified().await;
    }

    async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}
