//! The index in a SQLite file: apps and devices, on one machine.
//!
//! Constraints it lives under, beyond those of every engine:
//! - Readers do not block writers: each call of a scan reads the state at its start.
//! - Whether a device matches is decided by the shared definition ([`devices::criteria`]), not by
//!   SQL.
//!
//! Structures: the schema of [`push_store::sqlite`] has the tables and explains slots and codes.
//! There is one shard, with all slots of an app. [`devices`] registers and scans devices.
//!
//! Failures: an app is removed in one step, and its rows are deleted in further steps.
//! The next removal of any app finishes a deletion that was interrupted.

mod admin_keys;
mod apps;
mod audit;
mod components;
mod devices;
mod gone;
mod pacing;
mod secret_uses;
#[cfg(test)]
mod tests;
mod transfer;
mod usage;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicUsize},
};

use async_trait::async_trait;
use push_sqlite::{Database, StoreSettings};
use push_store::{
    Finding, IndexError, Resources, Store, TakesWrites,
    sqlite::{SqliteStore, inspect, resources},
};

use self::devices::criteria::{CriteriaCache, criteria_cache};
use crate::{MAX_APP_TOPICS, serials::Serials};

/// Settings of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteIndexSettings {
    /// The most slots of an app, which is the most devices it can have.
    pub most_slots: u32,
    /// Settings of the file.
    pub store: StoreSettings,
}

impl Default for SqliteIndexSettings {
    fn default() -> Self {
        Self { most_slots: u32::MAX, store: StoreSettings::default() }
    }
}

/// An index in a SQLite file.
#[derive(Debug)]
pub struct SqliteIndex {
    database: Database,
    namespace: Arc<str>,
    most_slots: u32,
    /// The most topics that an app gets.
    most_topics: AtomicUsize,
    criteria_cache: Arc<CriteriaCache>,
    serials: Serials,
}

impl SqliteIndex {
    /// Opens the index of this namespace in a file, and creates file and directory if they do not
    /// exist.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if the file is another program's or of a newer version; another kind
    /// if it cannot be used now.
    pub async fn open(
        path: &Path,
        namespace: &str,
        settings: SqliteIndexSettings,
    ) -> Result<Self, IndexError> {
        let SqliteIndexSettings { most_slots, store } = settings;
        let store = SqliteStore::open(path, namespace, store).await?;
        Ok(Self { most_slots, ..Self::new(store) })
    }

    /// Makes the index of a store.
    pub fn new(store: SqliteStore) -> Self {
        let SqliteStore { database, namespace } = store;
        Self {
            database,
            namespace,
            most_slots: SqliteIndexSettings::default().most_slots,
            most_topics: AtomicUsize::new(MAX_APP_TOPICS),
            criteria_cache: Arc::new(criteria_cache()),
            serials: Serials::new(),
        }
    }

    fn namespace(&self) -> Arc<str> {
        Arc::clone(&self.namespace)
    }
}

#[async_trait]
impl Store for SqliteIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        // An empty write shows that the writer runs and that no other process keeps the file
        // locked.
        Ok(self.database.write(|_| Ok(())).await?)
    }

    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.database.takes_writes().await?;
        Ok(TakesWrites::default())
    }

    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(resources(&self.database))
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(inspect(&self.database).await?)
    }
}
