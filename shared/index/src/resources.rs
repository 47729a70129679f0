//! What an index takes of its servers and of this program, for metrics and alerts.

use push_sqlite::ReaderUse;

/// What an index uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Its stores: each node of a cluster, and the ledger's own store if it has one.
    pub stores: Vec<StoreResources>,
    /// This program's caches.
    pub caches: Vec<CacheUse>,
}

/// What is in one cache of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// Its name in metrics.
    pub cache: &'static str,
    /// Its entries.
    pub entries: u64,
    /// How many it may have; those that were used least are dropped for new ones.
    pub limit: u64,
    /// How often it had what was wanted, since the program started.
    pub hits: u64,
    /// How often that was missing, or out of date.
    pub misses: u64,
}

/// What one store uses; memory, file and disk in bytes. What cannot be read is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreResources {
    /// What is in it.
    pub store: Store,
    /// The address of a node of a cluster; else empty.
    pub node: String,
    /// Memory that it uses.
    pub memory: Option<u64>,
    /// Memory that it may use; none if it has no limit.
    pub memory_limit: Option<u64>,
    /// The size of its file.
    pub file: Option<u64>,
    /// What is left on the disk of its file.
    pub disk_free: Option<u64>,
    /// How many reads this program runs on its file.
    pub readers: Option<ReaderUse>,
}

/// What a store of the index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Apps and devices, and the ledger unless that has a store of its own.
    Index,
    /// The ledger alone.
    Ledger,
}

impl Store {
    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Ledger => "ledger",
        }
    }
}

impl StoreResources {
    /// Of a node of which nothing was read yet.
    pub(crate) fn of_node(node: String) -> Self {
        Self {
            store: Store::Index,
            node,
            memory: None,
            memory_limit: None,
            file: None,
            disk_free: None,
            readers: None,
        }
    }
}
