//! Admits connections when more come than the service has room for.
//!
//! All connections together have a bound, and the connections of one address another, so that one address
//! leaves room for others. At either bound a new connection takes the place of an idle one ([`register`]). So
//! connections that lie idle, however many, keep no other client out for longer than it takes to close one of
//! them; and a reverse proxy, from whose address all connections come, loses idle ones only. A connection
//! whose client takes nothing of its answer makes room for an address that has fewer connections. A
//! connection with a request in work that has its body is never closed for another: it may have been
//! accepted, and must be answered.
//!
//! A connection that makes room is told so, in the way of its protocol (GOAWAY, `close_notify`, the
//! end of this side), so that its client sends nothing more over it. The newcomer does not wait for
//! that: for a moment ([`GOODBYE`]) a few connections more are open than are served. When too many
//! do that together, the next is closed without a word.
//!
//! `register` has the connections that are served and closes one of them, `share` bounds what the connections
//! of one address hold together.

mod register;
mod share;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::register::{ConnectionId, Evicted, Register, Task};
pub(super) use self::share::AddressShare;
use super::{activity::Activity, http2::unchecked_per_address};
use crate::{client::Client, metrics::Metrics, settings::HttpSettings};

/// The time for which a new connection waits until the one that is closed for it has ended.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that a connection has to end after it was told to.
const GOODBYE: Duration = Duration::from_secs(1);

/// Admits connections, and closes idle ones for new ones.
#[derive(Debug)]
pub(super) struct Admission {
    /// A permit for each connection that is served.
    room: Arc<Semaphore>,
    per_address: usize,
    register: Arc<Mutex<Register>>,
    metrics: Arc<Metrics>,
}

/// The reason why a connection is not served.
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
    share: Arc<AddressShare>,
    /// None only while it is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub(super) fn new(http: &HttpSettings, metrics: Arc<Metrics>) -> Self {
        Self {
            room: Arc::new(Semaphore::new(http.max_connections)),
            per_address: http.max_connections_per_address(),
            register: Arc::new(Mutex::new(Register::new(unchecked_per_address(
                http.max_connections,
            )))),
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
        let (id, share) = lock(&self.register).add(client, Arc::clone(activity));
        Ok(Admitted { register: Arc::clone(&self.register), id, share, permit: Some(permit) })
    }

    /// Notes the task that serves a connection and the token that stops it. From then on the connection
    /// can be closed for another.
    pub(super) fn set_task(
        &self,
        connection: ConnectionId,
        task: AbortHandle,
        stop: CancellationToken,
    ) {
        lock(&self.register).set_task(connection, Task { task, stop });
    }

    /// Closes a connection. Returns false if there is none that may be closed.
    fn evict(&self, evict: impl FnOnce(&mut Register, Instant) -> Option<Evicted>) -> bool {
        let Some(evicted) = evict(&mut lock(&self.register), Instant::now()) else { return false };
        self.metrics.evicted.inc();
        if let Evicted::Told(id) = evicted {
            // The newcomer has its place now; its own permit ends with it.
            self.room.add_permits(1);
            let register = Arc::clone(&self.register);
            tokio::spawn(async move {
                sleep(GOODBYE).await;
                lock(&register).cut_off(id);
            });
        }
        true
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

    pub(super) fn share(&self) -> &Arc<AddressShare> {
        &self.share
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let was_told = lock(&self.register).remove(self.id);
        if let Some(permit) = self.permit.take()
            && was_told
        {
            permit.forget();
        }
    }
}

fn lock(register: &Mutex<Register>) -> MutexGuard<'_, Register> {
    register.lock().unwrap_or_else(PoisonError::into_inner)
}
