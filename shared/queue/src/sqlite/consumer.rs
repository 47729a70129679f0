//! Consumers and their deliveries.
//!
//! Each unsettled delivery has a permit. The permit is acquired before the claim, moves with the
//! delivery, and is released when the delivery is settled, or given back after it was dropped. So
//! there are never more unsettled deliveries than the prefetch allows.

use std::{collections::VecDeque, fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use push_model::time::UnixMillis;
use push_sqlite::StoreError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep},
};

use super::{
    messages::{self, Claim, ClaimedMessage},
    shared::{DroppedDelivery, Shared},
};
use crate::{Consumer, Delivery, Lane, QueueError, Settle};

/// The delivery was settled too late: another consumer may have the message now.
#[derive(Debug, thiserror::Error)]
#[error("the lease of the delivery had ended")]
struct LeaseEnded;

/// A claimed message that [`Consumer::next`] has not returned yet.
struct ClaimedDelivery {
    payload: Bytes,
    deliveries: u32,
    settle: SqliteSettle,
}

pub(super) struct SqliteConsumer {
    shared: Arc<Shared>,
    lane: Lane,
    permits: Arc<Semaphore>,
    woken: watch::Receiver<()>,
    /// A claim on its way; kept here so that cancelling [`Consumer::next`] does not lose it.
    claiming: Option<BoxFuture<'static, Result<Vec<ClaimedDelivery>, StoreError>>>,
    claimed: VecDeque<ClaimedDelivery>,
}

impl SqliteConsumer {
    pub(super) fn new(shared: Arc<Shared>, lane: Lane, prefetch: u16) -> Self {
        let woken = shared.woken(lane);
        let permits = Arc::new(Semaphore::new(usize::from(prefetch.max(1))));
        Self { shared, lane, permits, woken, claiming: None, claimed: VecDeque::new() }
    }

    /// Claims as many messages as there are free permits, waiting for the first.
    async fn claim(&mut self) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let claim = match &mut self.claiming {
            Some(claim) => claim,
            none => {
                let permits =
                    acquire_permits(&self.permits, self.shared.settings.claim_size).await?;
                // A message that is published from here on ends the wait after this claim.
                self.woken.mark_unchanged();
                none.insert(claim(Arc::clone(&self.shared), self.lane, permits).boxed())
            }
        };
        let claimed = claim.await;
        self.claiming = None;
        claimed
    }

    /// Waits until there may be messages to claim.
    async fn wait(&mut self) -> Result<(), StoreError> {
        loop {
            tokio::select! {
                // It cannot fail, because `shared` has the sender.
                _ = self.woken.changed() => return Ok(()),
                () = sleep(self.shared.settings.poll) => {}
            }
            let (lane, now) = (self.shared.lanes.id(self.lane), UnixMillis::now());
            let found = self.shared.database.read(move |sql| messages::has_ready(sql, lane, now));
            if found.await? {
                return Ok(());
            }
        }
    }

    async fn next_claimed(&mut self) -> Result<ClaimedDelivery, QueueError> {
        loop {
            if let Some(next) = self.claimed.pop_front() {
                return Ok(next);
            }
            let result = match self.claim().await {
                Ok(claimed) if claimed.is_empty() => self.wait().await,
                Ok(claimed) => {
                    self.claimed.extend(claimed);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {}
                Err(StoreError::Closed) => return Err(QueueError::Closed),
                Err(error) if error.is_permanent() => return Err(error.into()),
                Err(error) => {
                    let lane = self.lane.name();
                    tracing::warn!(
                        runbook = "a-store-is-unreachable-or-refuses-writes",
                        lane,
                        %error,
                        cause = ?error,
                        "cannot consume, trying again"
                    );
                    sleep(self.shared.settings.retry_after).await;
                }
            }
        }
    }
}

#[async_trait]
impl Consumer for SqliteConsumer {
    async fn next(&mut self) -> Result<Delivery, QueueError> {
        let closing = self.shared.closing.clone();
        let next = tokio::select! {
            biased;
            () = closing.cancelled() => return Err(QueueError::Closed),
            next = self.next_claimed() => next?,
        };
        let ClaimedDelivery { payload, deliveries, mut settle } = next;
        settle.handed_out = true;
        Ok(Delivery::new(payload, deliveries, Box::new(settle)))
    }

    fn connected(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

/// Waits for one permit, and acquires it with the others that are free, up to `most`.
async fn acquire_permits(
    permits: &Arc<Semaphore>,
    most: u16,
) -> Result<OwnedSemaphorePermit, StoreError> {
    let closed = |_| StoreError::Closed;
    let mut acquired = Arc::clone(permits).acquire_owned().await.map_err(closed)?;
    while acquired.num_permits() < usize::from(most)
        && let Ok(another) = Arc::clone(permits).try_acquire_owned()
    {
        acquired.merge(another);
    }
    Ok(acquired)
}

/// Claims up to as many messages as there are permits. The claim may be committed although the
/// consumer was dropped: then each [`SqliteSettle`] is dropped, and gives its message back.
async fn claim(
    shared: Arc<Shared>,
    lane: Lane,
    mut permits: OwnedSemaphorePermit,
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    let database = shared.database.clone();
    let write = move |sql: &rusqlite::Connection| {
        // A closed queue has given its deliveries back, and would never give this claim back.
        if shared.closing.is_cancelled() {
            return Err(StoreError::Closed);
        }
        let (lane, most) = (shared.lanes.id(lane), permits.num_permits());
        let claimed = messages::claim(sql, lane, &shared.lease, most, UnixMillis::now())?;
        let hold = |ClaimedMessage { claim, deliveries, payload }| {
            let permit = permits.split(1)?;
            let settle = SqliteSettle {
                shared: Arc::clone(&shared),
                claim,
                permit: Some(permit),
                handed_out: false,
            };
            Some(ClaimedDelivery { payload, deliveries, settle })
        };
        Ok(claimed.into_iter().filter_map(hold).collect())
    };
    database.write(write).await
}

/// Settles a claimed message. If it is dropped before, the message is given back.
struct SqliteSettle {
    shared: Arc<Shared>,
    claim: Claim,
    /// None once it is settled.
    permit: Option<OwnedSemaphorePermit>,
    handed_out: bool,
}

impl SqliteSettle {
    /// Releases the permit, after which dropping this does nothing.
    fn settled(&mut self) {
        self.permit = None;
    }
}

#[async_trait]
impl Settle for SqliteSettle {
    async fn ack(mut self: Box<Self>) -> Result<(), QueueError> {
        let claim = self.claim;
        let held = self.shared.database.write(move |sql| messages::acknowledge(sql, claim)).await?;
        self.settled();
        if held { Ok(()) } else { Err(QueueError::Unavailable(Box::new(LeaseEnded))) }
    }

    async fn requeue(mut self: Box<Self>) -> Result<(), QueueError> {
        let claim = self.claim;
        self.shared.database.write(move |sql| messages::give_back(sql, claim, true)).await?;
        self.settled();
        self.shared.wake_all();
        Ok(())
    }

    fn is_ours(&self) -> bool {
        let covered = self.shared.lease.covers(self.claim.number, Instant::now());
        covered && !self.shared.closing.is_cancelled()
    }
}

impl Drop for SqliteSettle {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let Self { claim, handed_out, .. } = *self;
            self.shared.note_dropped(DroppedDelivery { claim, handed_out, _permit: permit });
        }
    }
}

impl fmt::Debug for SqliteConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteConsumer").field("lane", &self.lane).finish_non_exhaustive()
    }
}
