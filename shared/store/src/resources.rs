//! The use of servers and of this program's memory by a store, for metrics and alerts.

use push_sqlite::ReaderUse;

/// The resources of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Its servers: each node of a cluster, or one.
    pub stores: Vec<StoreResources>,
    /// This program's caches.
    pub caches: Vec<CacheUse>,
}

/// The use of one cache of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// Its name in metrics.
    pub cache: &'static str,
    /// Its entries.
    pub entries: u64,
    /// The most entries; the least used ones are dropped for new ones.
    pub limit: u64,
    /// Lookups that found their entry, since the program started.
    pub hits: u64,
    /// Lookups whose entry was missing or out of date.
    pub misses: u64,
}

/// The resources of one server or file; memory, file and disk in bytes. None if it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreResources {
    /// The address of a node of a cluster; else empty.
    pub node: String,
    /// Memory that it uses.
    pub memory: Option<u64>,
    /// Memory that it may use; none if it has no limit.
    pub memory_limit: Option<u64>,
    /// The size of its file.
    pub file: Option<u64>,
    /// Free space on the disk of its file.
    pub disk_free: Option<u64>,
    /// The reads that this program runs on its file.
    pub readers: Option<ReaderUse>,
}

impl StoreResources {
    /// Returns the resources of a node before anything is read.
    pub(crate) fn of_node(node: String) -> Self {
        Self { node, memory: None, memory_limit: None, file: None, disk_free: None, readers: None }
    }
}
