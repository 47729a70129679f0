//! What all pools of a process share: the connector, the bounds, and the pools themselves.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Pool;
use crate::{
    connect::Connector,
    connection::End,
    error::{Step, Unreachable, Why},
    exchange::NotProcessed,
    origin::{Origin, Owner, PoolKey},
    permits::{Permit, Permits},
};

/// The time that a connect waits for one of the process's connections to end.
const PERMIT_WAIT: Duration = Duration::from_secs(5);

/// Gives a number from 0 to 1 for the jitter of pauses.
pub type Jitter = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Bounds of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections to one origin and key.
    pub connections_per_origin: usize,
    /// The most connections of the process. A quarter of them is the operator's, so that tenants'
    /// servers, which may hang, cannot keep the providers out. A key gets another one only while it
    /// has fewer than are free.
    pub connections: usize,
    /// The most origins of tenants, and of the operator, whose connections and failures are
    /// remembered.
    pub origins: usize,
}

impl Default for Limits {
    /// A provider's connection carries a hundred requests or more, so a few are enough for any
    /// worker. Each connection takes a file descriptor and up to some hundred KiB.
    fn default() -> Self {
        Self { connections_per_origin: 8, connections: 512, origins: 1024 }
    }
}

/// Numbers for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The connections that are open or being opened.
    pub connections: usize,
    /// The connects that failed since the start.
    pub connects_failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    connects_failed: AtomicU64,
}

impl Counters {
    pub(crate) fn connect_failed(&self) {
        self.connects_failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// An origin and the key of its connections.
pub(crate) type Place = Arc<(Origin, PoolKey)>;

pub(crate) struct Shared {
    pub(crate) connector: Connector,
    pub(crate) limits: Limits,
    pub(crate) tasks: TaskTracker,
    /// Gives up every connect.
    pub(crate) closing: CancellationToken,
    /// Ends every connection.
    pub(crate) cancel: CancellationToken,
    pub(crate) counts: Counters,
    jitter: Jitter,
    operator_permits: Arc<Permits>,
    tenant_permits: Arc<Permits>,
    pools: Mutex<Pools>,
}

#[derive(Debug, Default)]
struct Pools {
    operator: HashMap<Place, Arc<Pool>>,
    tenants: HashMap<Place, Arc<Pool>>,
    closed: bool,
}

impl Pools {
    fn of(&mut self, owner: Owner) -> &mut HashMap<Place, Arc<Pool>> {
        match owner {
            Owner::Operator => &mut self.operator,
            Owner::Tenant => &mut self.tenants,
        }
    }
}

impl Shared {
    pub(crate) fn new(connector: Connector, limits: Limits, jitter: Jitter) -> Self {
        let operators = limits.connections.div_ceil(4);
        let tenants = limits.connections.saturating_sub(operators);
        Self {
            connector,
            limits,
            jitter,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            cancel: CancellationToken::new(),
            counts: Counters::default(),
            operator_permits: Permits::new(operators),
            tenant_permits: Permits::new(tenants),
            pools: Mutex::default(),
        }
    }

    pub(crate) fn jitter(&self) -> f64 {
        (self.jitter)()
    }

    pub(crate) fn counts(&self) -> Counts {
        let permits = [&self.operator_permits, &self.tenant_permits];
        let free: usize = permits.iter().map(|permits| permits.free()).sum();
        Counts {
            connections: self.limits.connections.saturating_sub(free),
            connects_failed: self.counts.connects_failed.load(Ordering::Relaxed),
        }
    }

    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pool of the place, if it is remembered.
    pub(crate) fn find(&self, place: &Place) -> Option<Arc<Pool>> {
        self.pools().of(place.0.owner()).get(place).cloned()
    }

    /// Returns the pool of the place. If there are too many, the one that was not used for longest
    /// is forgotten, and its connections are closed. A key whose servers all hang leaves pools to others,
    /// as it leaves [`Permits`] to them.
    pub(crate) fn pool(self: &Arc<Self>, place: &Place) -> Result<Arc<Pool>, NotProcessed> {
        let mut evicted = None;
        let mut pools = self.pools();
        if pools.closed {
            return Err(NotProcessed::Closing);
        }
        let peers = pools.of(place.0.owner());
        if let Some(pool) = peers.get(place) {
            return Ok(Arc::clone(pool));
        }
        if peers.len() >= self.limits.origins {
            // A pool that is held elsewhere has requests, or is connecting.
            let in_use = |pool: &Arc<Pool>| Arc::strong_count(pool) > 1;
            let used = peers.values().filter(|pool| in_use(pool)).count();
            let of_key = peers.iter().filter(|(other, pool)| other.1 == place.1 && in_use(pool));
            if of_key.count() >= peers.len().saturating_sub(used) {
                return Err(NotProcessed::Full);
            }
            let unused = peers.iter().filter(|(_, pool)| !in_use(pool));
            let oldest = unused.min_by_key(|(_, pool)| pool.used());
            let oldest = oldest.map(|(place, _)| Arc::clone(place)).ok_or(NotProcessed::Full)?;
            evicted = peers.remove(&oldest);
        }
        let pool = Arc::new(Pool::new(Arc::clone(place), Arc::clone(self)));
        peers.insert(Arc::clone(place), Arc::clone(&pool));
        drop(pools);
        drop(evicted);
        Ok(pool)
    }

    /// Waits for the right to one more connection, for which one that is not used is closed.
    pub(crate) async fn permit(&self, place: &Place) -> Result<Permit, Unreachable> {
        let (owner, key) = (place.0.owner(), &place.1);
        let permits = match owner {
            Owner::Operator => &self.operator_permits,
            Owner::Tenant => &self.tenant_permits,
        };
        if let Some(permit) = permits.try_take(key) {
            return Ok(permit);
        }
        self.close_longest_idle(owner, key, permits);
        let permit = permits.take(key, Instant::now() + PERMIT_WAIT).await;
        permit.ok_or_else(|| Step::Connect.failed(Why::TooMany))
    }

    /// Closes the connection that is idle for longest, of this key or of one that has more connections.
    fn close_longest_idle(&self, owner: Owner, key: &PoolKey, permits: &Permits) {
        let pools: Vec<_> = {
            let mut pools = self.pools();
            let each = pools.of(owner).iter();
            each.map(|(place, pool)| (Arc::clone(place), Arc::clone(pool))).collect()
        };
        let most = permits.used(key);
        let may_close = |other: &PoolKey| other == key || permits.used(other) > most;
        let idle =
            pools.iter().filter_map(|(place, pool)| Some((pool.longest_idle()?, place, pool)));
        let idle = idle.filter(|(_, place, _)| may_close(&place.1));
        if let Some(((_, id), _, pool)) = idle.min_by_key(|(idle, ..)| *idle) {
            pool.retire(id, End::Ours);
        }
    }

    /// Takes no more requests, gives up connects, and forgets all pools once their requests have ended.
    pub(crate) fn close(&self) {
        let pools = {
            let mut pools = self.pools();
            pools.closed = true;
            (std::mem::take(&mut pools.operator), std::mem::take(&mut pools.tenants))
        };
        self.closing.cancel();
        pools.0.values().chain(pools.1.values()).for_each(Pool::close);
        self.tasks.close();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("connector", &self.connector)
            .field("limits", &self.limits)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
