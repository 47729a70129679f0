//! The index in a SQLite file: apps, devices and ledger, on one machine.
//!
//! Constraints it lives under, beyond those of every engine:
//! - Each call is one transaction, so nothing is ever seen half done. A write is answered when
//!   it is durable ([`push_sqlite`]).
//! - Readers do not hold writers up: a scan reads the state of its start, page by page.
//! - What decides about a device is the shared definition ([`criteria`]), not SQL.
//!
//! Structures: the tables are in [`schema`], with what slots and codes mean. There is one shard,
//! whose slots are all of an app's. What became of messages is in [`ledger`].
//!
//! Work that gets stuck: an app is removed in one step, and what it had is deleted piece by
//! piece after it; the next removal of any app finishes what was interrupted.

mod apps;
mod criteria;
mod devices;
mod inspect;
mod ledger;
mod pacing;
mod register;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod words;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use push_sqlite::{Database, StoreError, StoreSettings};

use super::{Finding, Index, IndexError};

/// How the index works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteIndexSettings {
    /// The most slots of an app, which is the most devices it can have at once.
    pub most_slots: u32,
    /// How the file is used.
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
            StoreError::Directory { .. } | StoreError::Open { .. } | StoreError::Thread(_) => {
                Self::Unreachable(Box::new(error))
            }
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
    space: i64,
    most_slots: u32,
}

impl SqliteIndex {
    /// Opens the index of this namespace in a file, and makes file and directory if need be.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if the file is another program's or of a newer version, another
    /// kind if it cannot be used now.
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
        let known = database.read(move |sql| schema::space(sql, &of)).await?;
        let of = Arc::clone(&namespace);
        let space = match known {
            Some(space) => space,
            None => database.write(move |sql| schema::make_space(sql, &of)).await?,
        };
        Ok(Self { database, namespace, space, most_slots })
    }

    fn namespace(&self) -> Arc<str> {
        Arc::clone(&self.namespace)
    }
}

#[async_trait]
impl Index for SqliteIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        // An empty write shows that the writer lives and that nobody keeps the file locked.
        Ok(self.database.write(|_| Ok(())).await?)
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(inspect::inspect(&self.database).await?)
    }
}
