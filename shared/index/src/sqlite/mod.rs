//! The index in a SQLite file: apps, devices and ledger, on one machine.
//!
//! Constraints it lives under, beyond those of every engine:
//! - Each call is one transaction, so a reader never sees half of a change. A write is answered
//!   when it is durable ([`push_sqlite`]).
//! - Readers do not block writers: each call of a scan reads the state at its start.
//! - Whether a device matches is decided by the shared definition ([`devices::criteria`]), not by
//!   SQL.
//!
//! Structures: [`schema`] has the tables and explains slots and codes. There is one shard, with all
//! slots of an app. [`devices`] registers and scans devices, [`ledger`] keeps the entries of
//! messages.
//!
//! Work that gets stuck: an app is removed in one step, and its rows are deleted in further steps.
//! The next removal of any app finishes a deletion that was interrupted.

mod apps;
mod audit;
mod devices;
mod gone;
mod inspect;
mod ledger;
mod pacing;
mod schema;
mod secret_uses;
#[cfg(test)]
mod tests;
mod transfer;
mod usage;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use push_sqlite::{Database, StoreError, StoreSettings};

use self::devices::criteria::{CriteriaCache, criteria_cache};
pub use self::ledger::SqliteLedger;
use crate::{Finding, IndexError, Resources, Store, StoreResources, TakesWrites, serials::Serials};

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

impl From<StoreError> for IndexError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreadable(what) => Self::Corrupt(what),
            error if error.is_permanent() => Self::Corrupt(error.to_string()),
            StoreError::Directory { .. }
            | StoreError::IsDirectory { .. }
            | StoreError::Open { .. }
            | StoreError::Thread(_) => Self::Unreachable(Box::new(error)),
            error if error.may_have_happened() => Self::Unsure(Box::new(error)),
            error => Self::Refused(Box::new(error)),
        }
    }
}

/// An index in a SQLite file.
#[derive(Debug)]
pub struct SqliteIndex {
    database: Database,
    namespace: Arc<str>,
    /// The number of the namespace's ledger.
    ledger_id: i64,
    most_slots: u32,
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
        let path = path.to_owned();
        let open = move || Database::open(&path, &schema::SCHEMA, store);
        let database = tokio::task::spawn_blocking(open)
            .await
            .map_err(|error| IndexError::Unreachable(Box::new(error)))??;
        let namespace: Arc<str> = namespace.into();
        let of = Arc::clone(&namespace);
        let known = database.read(move |sql| schema::ledger_id(sql, &of)).await?;
        let of = Arc::clone(&namespace);
        let ledger_id = match known {
            Some(ledger_id) => ledger_id,
            None => database.write(move |sql| schema::create_ledger(sql, &of)).await?,
        };
        let criteria_cache = Arc::new(criteria_cache());
        let serials = Serials::new();
        Ok(Self { database, namespace, ledger_id, most_slots, criteria_cache, serials })
    }

    /// Returns the ledger in this file.
    pub fn ledger(&self) -> SqliteLedger {
        SqliteLedger::new(self.database.clone(), self.ledger_id)
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
        Ok(inspect::inspect(&self.database).await?)
    }
}

/// Reads what the file uses.
fn resources(database: &Database) -> Resources {
    let disk = database.disk_use().ok();
    let store = StoreResources {
        file: disk.map(|disk| disk.file),
        disk_free: disk.map(|disk| disk.free),
        readers: Some(database.readers()),
        ..StoreResources::of_node(String::new())
    };
    Resources { stores: vec![store], caches: Vec::new() }
}
