//! A SQLite file that holds the index, the ledger or both, of one namespace or several.
//!
//! Each call of an engine is one transaction, so a reader never sees half of a change. A write is
//! answered when it is durable ([`push_sqlite`]). [`schema`] has the tables, and [`inspect`] what
//! `pushctl doctor` checks.

mod inspect;
mod schema;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use push_sqlite::{Database, StoreError, StoreSettings};

pub use self::{inspect::inspect, schema::execute};
use crate::{IndexError, Resources, StoreResources};

/// A file, and one namespace in it.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    /// The file.
    pub database: Database,
    /// The namespace.
    pub namespace: Arc<str>,
}

impl SqliteStore {
    /// Opens a file, and creates file and directory if they do not exist.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if the file is another program's or of a newer version; another kind
    /// if it cannot be used now.
    pub async fn open(
        path: &Path,
        namespace: &str,
        settings: StoreSettings,
    ) -> Result<Self, IndexError> {
        let path = path.to_owned();
        let open = move || Database::open(&path, &schema::SCHEMA, settings);
        let database = tokio::task::spawn_blocking(open)
            .await
            .map_err(|error| IndexError::Unreachable(Box::new(error)))??;
        Ok(Self { database, namespace: namespace.into() })
    }
}

/// Reads the memory and disk that the file uses.
pub fn resources(database: &Database) -> Resources {
    let disk = database.disk_use().ok();
    let store = StoreResources {
        file: disk.map(|disk| disk.file),
        disk_free: disk.map(|disk| disk.free),
        readers: Some(database.readers()),
        ..StoreResources::of_node(String::new())
    };
    Resources { stores: vec![store], caches: Vec::new() }
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
