//! The index in Redis, single or Cluster.
//!
//! A column store in strings. Constraints it lives under:
//! - Memory is what a Redis costs, so a device is a few bytes in each of a few long strings
//!   ([`layout`]), not keys or sets of its own.
//! - One core of Redis serves all requests, so whatever touches one shard is one call, and a
//!   fan-out moves tables, masks and decisions to the worker ([`criteria`], [`scan`]).
//! - Scripts change a shard atomically; readers read in several steps, so what decides about a
//!   device is its record alone, which is read in one piece ([`record`]).
//! - A Redis that is away is an error within a bounded time, and no more than that ([`link`]).

mod apps;
mod change;
mod criteria;
mod devices;
mod dictionary;
mod failure;
mod find;
mod inspect;
mod keys;
mod layout;
mod ledger;
mod link;
mod lookup;
mod pacing;
mod put;
mod record;
mod registrations;
mod reply;
mod scan;
mod scripts;
mod slot_cache;

use std::{fmt, sync::Arc, time::Duration};

use self::{
    dictionary::Remembered,
    find::BucketCounts,
    keys::Keys,
    ledger::{Swaps, swaps},
    link::{Link, Server},
    lookup::{Lookups, lookups},
    registrations::{Registrations, registrations},
    scripts::Scripts,
    slot_cache::SlotCache,
};
use super::{Finding, Index, IndexError};

/// How long to wait for Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisSettings {
    /// For a connection, with all that belongs to it (TLS, log-in, the map of a cluster).
    pub connect_timeout: Duration,
    /// For an answer. It must suffice for the largest read, which is a few megabytes.
    pub response_timeout: Duration,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(2), response_timeout: Duration::from_secs(5) }
    }
}

/// The index in Redis.
pub struct RedisIndex {
    keys: Keys,
    scripts: Arc<Scripts>,
    /// For calls of which the latency counts: one device, one app, one step of the ledger.
    quick: Arc<Link>,
    /// For scans and imports, so that nothing small waits behind their megabytes.
    bulk: Arc<Link>,
    remembered: Remembered,
    access: Access,
    /// Tells this program from others.
    program: u64,
    /// Changes of ledger records, in groups.
    swaps: Swaps,
    /// Lookups of devices, in groups.
    lookups: Lookups,
    /// Registrations of a few devices, in groups.
    registrations: Registrations,
}

/// What a group of calls needs, whichever caller began it.
#[derive(Clone)]
struct Access {
    scripts: Arc<Scripts>,
    link: Arc<Link>,
    buckets: Arc<BucketCounts>,
    slots: Arc<SlotCache>,
}

impl RedisIndex {
    /// Connects to `redis://…`, `rediss://…` or `redis-cluster://host:port,host:port`. All keys
    /// begin with `namespace`.
    ///
    /// # Errors
    /// If the URL is none of these, or the server does not answer now.
    pub async fn connect(
        url: &str,
        namespace: &str,
        settings: RedisSettings,
    ) -> Result<Self, IndexError> {
        let server = Server::open(url, &settings)?;
        let keys = Keys::new(namespace);
        let scripts = Arc::new(Scripts::new());
        let quick = Arc::new(Link::new(server.clone(), settings));
        let bulk = Arc::new(Link::new(server, settings));
        let access = Access {
            scripts: Arc::clone(&scripts),
            link: Arc::clone(&quick),
            buckets: Arc::new(find::bucket_counts()),
            slots: Arc::new(SlotCache::new()),
        };
        let index = Self {
            keys: keys.clone(),
            scripts,
            quick,
            remembered: dictionary::remembered(),
            program: rand::random::<u64>() >> 1,
            swaps: swaps(access.clone()),
            lookups: lookups(access.clone(), keys.clone()),
            registrations: registrations(access.clone(), keys, Arc::clone(&bulk)),
            bulk,
            access,
        };
        index.ping().await?;
        Ok(index)
    }
}

impl fmt::Debug for RedisIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisIndex").field("link", &self.quick).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Index for RedisIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        self.quick.read(&redis::cmd("PING")).await.map(drop)
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        inspect::inspect(&self.quick).await
    }
}
