//! What admits connections when more come than the service has room for.
//!
//! All connections together have a bound, and those of one address have one of their own, so that
//! one address leaves room for others. At either bound a new connection takes the place of an idle
//! one, in which no request is in work: at the bound of its address, of one of the same address; at
//! the bound of all, of one of the address that has the most. So connections that lie idle, however
//! many, keep no other client out for longer than it takes to close one of them; and a reverse
//! proxy, from whose address all connections come, loses idle ones only. A connection with a
//! request in work is never closed for another.
//!
//! `register` has the connections that are served, and says which of them is closed.

mod register;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, timeout},
};

use self::register::{ConnectionId, Register};
use super::activity::Activity;
use crate::{client::Client, metrics::Metrics, settings::HttpSettings};

/// How long a new connection waits until the one that is closed for it has ended.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Admits connections, and closes idle ones for new ones.
#[derive(Debug)]
pub(super) struct Admission {
    /// A permit for each connection that is served.
    room: Arc<Semaphore>,
    per_address: usize,
    register: Arc<Mutex<Register>>,
    metrics: Arc<Metrics>,
}

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// All connections have requests in work.
    Service,
    /// All connections of this address have requests in work, and it may have no more.
    Address,
}

/// A connection that is served. Dropped at its end, it makes room for another.
#[derive(Debug)]
pub(super) struct Admitted {
    register: Arc<Mutex<Register>>,
    id: ConnectionId,
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    pub(super) fn new(http: &HttpSettings, metrics: Arc<Metrics>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(http.max_connections)),
            per_address: http.max_connections_per_address(),
            register: Arc::default(),
            metrics,
        }
    }

    /// Admits a connection from this address. If there is no room, an idle one is closed for it.
    ///
    /// # Errors
    /// If there is no room, and no idle connection that may be closed.
    pub(super) async fn admit(
        &self,
        address: IpAddr,
        activity: &Arc<Activity>,
    ) -> Result<Admitted, Full> {
        let client = Client::of(address);
        let at_its_bound = lock(&self.register).count(client) >= self.per_address;
        if at_its_bound && !self.evict(|register, now| register.evict_one_of(client, now)) {
            return Err(Full::Address);
        }
        let permit = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if !at_its_bound && !self.evict(|register, now| register.evict_for(client, now)) {
                    return Err(Full::Service);
                }
                self.wait_for_room().await?
            }
        };
        let id = lock(&self.register).add(client, Arc::clone(activity));
        Ok(Admitted { register: Arc::clone(&self.register), id, _permit: permit })
    }

    /// Notes which task serves a connection. From then on it can be closed for another.
    pub(super) fn set_task(&self, connection: ConnectionId, task: AbortHandle) {
        lock(&self.register).set_task(connection, task);
    }

    fn evict(&self, evict: impl FnOnce(&mut Register, Instant) -> bool) -> bool {
        let is_evicted = evict(&mut lock(&self.register), Instant::now());
        if is_evicted {
            self.metrics.evicted.inc();
        }
        is_evicted
    }

    async fn wait_for_room(&self) -> Result<OwnedSemaphorePermit, Full> {
        match timeout(EVICTION_TIMEOUT, Arc::clone(&self.room).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Full::Service),
        }
    }
}

impl Admitted {
    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.register).remove(self.id);
    }
}

fn lock(register: &Mutex<Register>) -> MutexGuard<'_, Register> {
    register.lock().unwrap_or_else(PoisonError::into_inner)
}
