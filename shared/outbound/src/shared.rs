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
    origin::Origin,
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
    /// The most connections of the process.
    pub connections: usize,
    /// The most origins whose connections and failures are remembered.
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
    /// Ends every connection.
    pub(crate) cancel: CancellationToken,
    pub(crate) counts: Counters,
    jitter: Jitter,
    permits: Arc<Semaphore>,
    pools: Mutex<Pools>,
}

#[derive(Debug, Default)]
struct Pools {
    pools: HashMap<Place, Arc<Pool>>,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(connector: Connector, limits: Limits, jitter: Jitter) -> Self {
        Self {
            connector,
            limits,
            jitter,
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            counts: Counters::default(),
            permits: Arc::new(Semaphore::new(limits.connections)),
            pools: Mutex::default(),
        }
    }

    pub(crate) fn jitter(&self) -> f64 {
        (self.jitter)()
    }

    pub(crate) fn counts(&self) -> Counts {
        let free = self.permits.available_permits();
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
        self.pools().pools.get(place).cloned()
    }

    /// Returns the pool of the place. If there are too many, the one that was not used for longest
    /// is forgotten, and its connections are closed.
    pub(crate) fn pool(self: &Arc<Self>, place: &Place) -> Result<Arc<Pool>, NotProcessed> {
        let mut evicted = None;
        let mut pools = self.pools();
        if pools.closed {
            return Err(NotProcessed::Closing);
        }
        if let Some(pool) = pools.pools.get(place) {
            return Ok(Arc::clone(pool));
        }
        if pools.pools.len() >= self.limits.origins {
            // A pool that is held elsewhere has requests, or is connecting.
            let unused = pools.pools.iter().filter(|(_, pool)| Arc::strong_count(pool) == 1);
            let oldest = unused.min_by_key(|(_, pool)| pool.used());
            let oldest = oldest.map(|(place, _)| Arc::clone(place)).ok_or(NotProcessed::Full)?;
            evicted = pools.pools.remove(&oldest);
        }
        let pool = Arc::new(Pool::new(place.0.clone(), Arc::clone(self)));
        pools.pools.insert(Arc::clone(place), Arc::clone(&pool));
        drop(pools);
        drop(evicted);
        Ok(pool)
    }

    /// Waits for the right to one more connection, for which one that is not used is closed.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, Unreachable> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.close_longest_idle();
        match timeout(PERMIT_WAIT, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Step::Connect.failed(Why::TooMany)),
        }
    }

    fn close_longest_idle(&self) {
        let pools: Vec<_> = self.pools().pools.values().cloned().collect();
        let idle = pools.iter().filter_map(|pool| Some((pool.longest_idle()?, pool)));
        let longest: Option<((Instant, u64), _)> = idle.min_by_key(|(idle, _)| *idle);
        if let Some(((_, id), pool)) = longest {
            pool.retire(id, End::Ours);
        }
    }

    /// Takes no more requests, and forgets all pools once their requests have ended.
    pub(crate) fn close(&self) {
        let pools = {
            let mut pools = self.pools();
            pools.closed = true;
            std::mem::take(&mut pools.pools)
        };
        pools.values().for_each(Pool::close);
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
