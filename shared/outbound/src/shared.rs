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

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    connect::Connector,
    connection::End,
    error::{Step, Unreachable, Why},
    exchange::NotProcessed,
    origin::{Origin, Owner},
    pool::Pool,
};

/// The time that a connect waits for one of the process's connections to end.
const PERMIT_WAIT: Duration = Duration::from_secs(5);

/// Gives a number from 0 to 1 for the jitter of pauses.
pub type Jitter = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Keeps requests to one origin on connections of their own: those with equal keys share them. APNs
/// wants the teams apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PoolKey(pub String);

/// Bounds of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections to one origin and key.
    pub connections_per_origin: usize,
    /// The most connections of the process. A quarter of them is the operator's, so that tenants'
    /// servers, which may hang, cannot keep the providers out.
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
    operator_permits: Arc<Semaphore>,
    tenant_permits: Arc<Semaphore>,
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
            operator_permits: Arc::new(Semaphore::new(operators)),
            tenant_permits: Arc::new(Semaphore::new(tenants)),
            pools: Mutex::default(),
        }
    }

    pub(crate) fn jitter(&self) -> f64 {
        (self.jitter)()
    }

    pub(crate) fn counts(&self) -> Counts {
        let permits = [&self.operator_permits, &self.tenant_permits];
        let free: usize = permits.iter().map(|permits| permits.available_permits()).sum();
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
    /// is forgotten, and its connections are closed.
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
            let unused = peers.iter().filter(|(_, pool)| Arc::strong_count(pool) == 1);
            let oldest = unused.min_by_key(|(_, pool)| pool.used());
            let oldest = oldest.map(|(place, _)| Arc::clone(place)).ok_or(NotProcessed::Full)?;
            evicted = peers.remove(&oldest);
        }
        let pool = Arc::new(Pool::new(place.0.clone(), Arc::clone(self)));
        peers.insert(Arc::clone(place), Arc::clone(&pool));
        drop(pools);
        drop(evicted);
        Ok(pool)
    }

    /// Waits for the right to one more connection, for which one that is not used is closed.
    pub(crate) async fn permit(&self, owner: Owner) -> Result<OwnedSemaphorePermit, Unreachable> {
        let permits = match owner {
            Owner::Operator => &self.operator_permits,
            Owner::Tenant => &self.tenant_permits,
        };
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.close_longest_idle(owner);
        match timeout(PERMIT_WAIT, Arc::clone(permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Step::Connect.failed(Why::TooMany)),
        }
    }

    fn close_longest_idle(&self, owner: Owner) {
        let pools: Vec<_> = self.pools().of(owner).values().cloned().collect();
        let idle = pools.iter().filter_map(|pool| Some((pool.longest_idle()?, pool)));
        let longest: Option<((Instant, u64), _)> = idle.min_by_key(|(idle, _)| *idle);
        if let Some(((_, id), pool)) = longest {
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
