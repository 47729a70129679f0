//! Consumers and the deliveries they hand out.
//!
//! A permit stands for an undecided delivery. It is taken before the claim, travels with the
//! delivery, and comes free when the delivery is settled, or given back after it was dropped. So
//! there are never more undecided deliveries than the prefetch allows.

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
    messages::{self, Claim, Claimed},
    shared::{Dropped, Shared},
};
use crate::{Consumer, Delivery, Lane, QueueError, Settle};

/// The delivery came too late: it belongs to somebody else now.
#[derive(Debug, thiserror::Error)]
#[error("the lease of the delivery had ended")]
struct LeaseEnded;

/// A message that is claimed and that nobody has seen yet.
struct Waiting {
    payload: Bytes,
    deliveries: u32,
    held: Held,
}

pub(super) struct SqliteConsumer {
    shared: Arc<Shared>,
    lane: Lane,
    permits: Arc<Semaphore>,
    woken: watch::Receiver<()>,
    /// A claim on its way; kept here so that cancelling [`Consumer::next`] does not lose it.
    claiming: Option<BoxFuture<'static, Result<Vec<Waiting>, StoreError>>>,
    waiting: VecDeque<Waiting>,
}

impl SqliteConsumer {
    pub(super) fn new(shared: Arc<Shared>, lane: Lane, prefetch: u16) -> Self {
        let woken = shared.woken(lane);
        let permits = Arc::new(Semaphore::new(usize::from(prefetch.max(1))));
        Self { shared, lane, permits, woken, claiming: None, waiting: VecDeque::new() }
    }

    /// Claims as many messages as there are free permits, once there is one.
    async fn claim(&mut self) -> Result<Vec<Waiting>, StoreError> {
        let claim = match &mut self.claiming {
            Some(claim) => claim,
            none => {
                let permits = take_permits(&self.permits, self.shared.settings.claim_size).await?;
                // Whatever is published from here on wakes the wait after this claim.
                self.woken.mark_unchanged();
                none.insert(claim(Arc::clone(&self.shared), self.lane, permits).boxed())
            }
        };
        let claimed = claim.await;
        self.claiming = None;
        claimed
    }

    /// Waits until there may be something to claim.
    async fn wait(&mut self) -> Result<(), StoreError> {
        loop {
            tokio::select! {
                // It fails only when the sender is gone, and `shared` holds it.
                _ = self.woken.changed() => return Ok(()),
                () = sleep(self.shared.settings.poll) => {}
            }
            let (lane, now) = (self.shared.lanes.id(self.lane), UnixMillis::now());
            let look = self.shared.database.read(move |sql| messages::has_ready(sql, lane, now));
            if look.await? {
                return Ok(());
            }
        }
    }

    async fn next_waiting(&mut self) -> Result<Waiting, QueueError> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                return Ok(next);
            }
            let found = match self.claim().await {
                Ok(claimed) if claimed.is_empty() => self.wait().await,
                Ok(claimed) => {
                    self.waiting.extend(claimed);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match found {
                Ok(()) => {}
                Err(StoreError::Closed) => return Err(QueueError::Closed),
                Err(error) if error.is_permanent() => return Err(error.into()),
                Err(error) => {
                    let lane = self.lane.name();
                    tracing::warn!(lane, %error, cause = ?error, "cannot consume, trying again");
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
            next = self.next_waiting() => next?,
        };
        let Waiting { payload, deliveries, mut held } = next;
        held.handed_out = true;
        Ok(Delivery::new(payload, deliveries, Box::new(held)))
    }

    fn open(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

/// One permit, waiting for it, and those that are free besides, up to `most`.
async fn take_permits(
    permits: &Arc<Semaphore>,
    most: u16,
) -> Result<OwnedSemaphorePermit, StoreError> {
    let closed = |_| StoreError::Closed;
    let mut taken = Arc::clone(permits).acquire_owned().await.map_err(closed)?;
    while taken.num_permits() < usize::from(most)
        && let Ok(another) = Arc::clone(permits).try_acquire_owned()
    {
        taken.merge(another);
    }
    Ok(taken)
}

/// Claims up to as many messages as there are permits. The claim may be committed although
/// nobody waits for it any more: then each [`Held`] is dropped, and gives its message back.
async fn claim(
    shared: Arc<Shared>,
    lane: Lane,
    mut permits: OwnedSemaphorePermit,
) -> Result<Vec<Waiting>, StoreError> {
    let database = shared.database.clone();
    let write = move |sql: &rusqlite::Connection| {
        // What is claimed after the holder has left would be nobody's.
        if shared.closing.is_cancelled() {
            return Err(StoreError::Closed);
        }
        let (lane, most) = (shared.lanes.id(lane), permits.num_permits());
        let claimed = messages::claim(sql, lane, &shared.lease, most, UnixMillis::now())?;
        let hold = |Claimed { claim, deliveries, payload }| {
            let permit = permits.split(1)?;
            let held = Held {
                shared: Arc::clone(&shared),
                claim,
                permit: Some(permit),
                handed_out: false,
            };
            Some(Waiting { payload, deliveries, held })
        };
        Ok(claimed.into_iter().filter_map(hold).collect())
    };
    database.write(write).await
}

/// A claimed message that is not settled.
struct Held {
    shared: Arc<Shared>,
    claim: Claim,
    /// None once it is settled.
    permit: Option<OwnedSemaphorePermit>,
    handed_out: bool,
}

impl Held {
    fn settled(&mut self) {
        self.permit = None;
    }
}

#[async_trait]
impl Settle for Held {
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

    fn is_held(&self) -> bool {
        let covered = self.shared.lease.covers(self.claim.number, Instant::now());
        covered && !self.shared.closing.is_cancelled()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let Self { claim, handed_out, .. } = *self;
            self.shared.note_dropped(Dropped { claim, handed_out, _permit: permit });
        }
    }
}

impl fmt::Debug for SqliteConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteConsumer").field("lane", &self.lane).finish_non_exhaustive()
    }
}
