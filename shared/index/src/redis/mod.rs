//! The index in Redis, single or Cluster: a column store in strings.
//!
//! Constraints it lives under:
//! - The cost of a Redis is its memory, so a device is a few bytes in each of a few long strings
//!   (`layout`), not keys or sets of its own.
//! - Redis serves all requests on one core, so whatever touches one shard is one call, and a
//!   fan-out moves the tables, masks and decisions to the worker (`devices::scan`).
//! - Scripts change a shard atomically; readers read in several steps, so what decides about a
//!   device is its record alone, which is read in one piece (`devices::record`).
//! - A Redis that is unavailable is an error within a bounded time, and nothing else
//!   ([`push_store::redis`]).
//!
//! Modules:
//! - `layout`: how devices are stored. `scripts`: the Lua scripts.
//! - `apps`, `dictionary`, `pacing`, `secret_uses`, `usage`: what is kept of an app beside its devices.
//! - `audit`: the audit trail. `components`: running programs. `gone`: devices that providers reported as gone.
//! - `transfer`: apps that come from another store.
//! - `devices`: registering, finding and scanning devices. `users`: the devices of users.
//! - `cache_hits`: how often caches helped.

mod admin_keys;
mod apps;
mod audit;
mod cache_hits;
mod components;
mod devices;
mod dictionary;
mod gone;
mod layout;
mod pacing;
mod scripts;
mod secret_uses;
mod transfer;
mod usage;
mod users;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicUsize},
};

use push_store::{
    Finding, IndexError, Resources, Store, TakesWrites,
    redis::{
        RedisSettings, RedisStore, connection::Link, inspect, keys::Keys, ping, resources,
        write_probe,
    },
};

use self::{
    cache_hits::CacheHits,
    devices::{
        BucketCounts, Lookups, Registrations, SlotCache, TableCache, bucket_counts, lookups,
        registrations, table_cache,
    },
    dictionary::{DictionaryCache, dictionary_cache},
    scripts::Scripts,
};
use super::{MAX_APP_TOPICS, serials::Serials};

/// The index in Redis.
pub struct RedisIndex {
    keys: Keys,
    scripts: Arc<Scripts>,
    /// For calls whose latency matters: one device, one app.
    quick: Arc<Link>,
    /// For scans and imports, so that no small call waits behind their megabytes.
    bulk: Arc<Link>,
    dictionary_cache: DictionaryCache,
    /// The tables of targetings.
    table_cache: TableCache,
    context: Context,
    /// A random number that tells this program from others.
    program: u64,
    /// Coalesces lookups of devices.
    lookups: Lookups,
    /// Coalesces registrations of a few devices.
    registrations: Registrations,
    serials: Serials,
    /// The most topics that an app may have.
    most_topics: AtomicUsize,
}

/// The connections and caches of a group of coalesced calls: a group outlives the call that started
/// it, so it owns its dependencies.
#[derive(Clone)]
struct Context {
    scripts: Arc<Scripts>,
    link: Arc<Link>,
    buckets: Arc<BucketCounts>,
    slots: Arc<SlotCache>,
    hits: Arc<CacheHits>,
}

impl RedisIndex {
    /// Connects to `redis://…`, `rediss://…`, `redis-cluster://host:port,host:port` or
    /// `rediss-cluster://…`. All keys begin with `namespace`.
    ///
    /// # Errors
    /// If the URL is none of these, or the server does not answer now.
    pub async fn connect(
        url: &str,
        namespace: &str,
        settings: RedisSettings,
    ) -> Result<Self, IndexError> {
        Ok(Self::new(RedisStore::connect(url, namespace, settings).await?))
    }

    /// Makes the index of a store.
    pub fn new(store: RedisStore) -> Self {
        let RedisStore { keys, quick, bulk } = store;
        let scripts = Arc::new(Scripts::new());
        let context = Context {
            scripts: Arc::clone(&scripts),
            link: Arc::clone(&quick),
            buckets: Arc::new(bucket_counts()),
            slots: Arc::new(SlotCache::new()),
            hits: Arc::default(),
        };
        Self {
            keys: keys.clone(),
            scripts,
            quick,
            dictionary_cache: dictionary_cache(),
            table_cache: table_cache(),
            program: rand::random::<u64>() >> 1,
            lookups: lookups(context.clone(), keys.clone()),
            registrations: registrations(context.clone(), keys, Arc::clone(&bulk)),
            serials: Serials::new(),
            most_topics: AtomicUsize::new(MAX_APP_TOPICS),
            bulk,
            context,
        }
    }
}

impl fmt::Debug for RedisIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisIndex").field("link", &self.quick).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Store for RedisIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        ping(&self.quick).await
    }

    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        write_probe::takes_writes(&self.quick, &self.keys).await
    }

    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(Resources { stores: resources::read(&self.quick).await?, caches: self.caches() })
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        inspect::inspect(&self.quick, &self.keys).await
    }
}
