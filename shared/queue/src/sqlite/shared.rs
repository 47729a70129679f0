//! The state that a queue shares with its background task, its consumers and their deliveries.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use push_sqlite::{Database, StoreError};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    leases::{self, Lease},
    messages::{self, Claim},
    schema::Lanes,
    settings::SqliteQueueSettings,
};
use crate::Lane;

/// A delivery that was dropped without being settled, and must be given back.
#[derive(Debug)]
pub(super) struct DroppedDelivery {
    pub(super) claim: Claim,
    /// True if [`Consumer::next`](crate::Consumer::next) returned it.
    pub(super) handed_out: bool,
    /// The delivery counts as unsettled until it is given back, which also bounds how many there
    /// can be.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The state of one open queue.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) lanes: Lanes,
    pub(super) settings: SqliteQueueSettings,
    /// The lease under which this queue holds its deliveries.
    pub(super) lease: Arc<Lease>,
    pub(super) closing: CancellationToken,
    /// Notified when a delivery is added to `dropped`.
    pub(super) has_dropped: Notify,
    dropped: Mutex<Vec<DroppedDelivery>>,
    /// One for each lane, in the order of [`Lane::QUEUES`].
    wakers: [watch::Sender<()>; Lane::QUEUES.len()],
}

impl Shared {
    pub(super) fn new(database: Database, lanes: Lanes, settings: SqliteQueueSettings) -> Self {
        Self {
            database,
            lanes,
            lease: Arc::new(Lease::new(rand::random(), settings.lease)),
            settings,
            closing: CancellationToken::new(),
            has_dropped: Notify::new(),
            dropped: Mutex::default(),
            wakers: Lane::QUEUES.map(|_| watch::Sender::new(())),
        }
    }

    fn waker(&self, lane: Lane) -> &watch::Sender<()> {
        let [jobs, tasks, isolated] = &self.wakers;
        match lane {
            Lane::Jobs => jobs,
            Lane::Tasks => tasks,
            Lane::Isolated => isolated,
        }
    }

    /// Makes the consumers of a lane look for messages now.
    pub(super) fn wake(&self, lane: Lane) {
        self.waker(lane).send_replace(());
    }

    /// Makes all consumers look for messages now.
    pub(super) fn wake_all(&self) {
        for lane in Lane::QUEUES {
            self.wake(lane);
        }
    }

    /// Changes whenever there may be a new message in a lane.
    pub(super) fn woken(&self, lane: Lane) -> watch::Receiver<()> {
        self.waker(lane).subscribe()
    }

    /// Writes a heartbeat, which renews this holder's lease.
    pub(super) async fn beat(&self) -> Result<(), StoreError> {
        let (lease, begun) = (Arc::clone(&self.lease), Instant::now());
        self.database.write(move |sql| leases::beat(sql, &lease)).await?;
        self.lease.renewed(begun);
        Ok(())
    }

    /// Notes a delivery that must be given back, without waiting.
    pub(super) fn note_dropped(&self, dropped: DroppedDelivery) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(dropped);
        self.has_dropped.notify_one();
    }

    /// Gives back the deliveries that were dropped. If that fails they stay noted.
    pub(super) async fn give_back_dropped(&self) -> Result<(), StoreError> {
        let list = mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        if list.is_empty() {
            return Ok(());
        }
        let claims: Vec<_> = list.iter().map(|d| (d.claim, d.handed_out)).collect();
        let write = self.database.write(move |sql| {
            claims
                .into_iter()
                .try_for_each(|(claim, handed_out)| messages::give_back(sql, claim, handed_out))
        });
        if let Err(error) = write.await {
            self.dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(list);
            return Err(error);
        }
        drop(list);
        self.wake_all();
        Ok(())
    }
}
