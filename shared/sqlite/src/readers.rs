//! The connections for reads. A read sees one committed state from its start to its end, whatever
//! is written meanwhile.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tracing::Span;

use super::{StoreError, StoreSettings, connection};

/// The reads that run on a file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderUse {
    /// Reads that run.
    pub in_use: usize,
    /// The most that may run at the same time; further ones wait.
    pub limit: usize,
}

pub(super) struct Readers {
    path: PathBuf,
    settings: StoreSettings,
    permits: Arc<Semaphore>,
    /// Connections that no read uses now. They are opened when they are first needed.
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, settings: StoreSettings) -> Self {
        let permits = Arc::new(Semaphore::new(settings.readers.max(1)));
        Self { path, settings, permits, idle: Mutex::default() }
    }

    /// Runs a closure on a thread for blocking work, inside a read transaction.
    pub(super) async fn read<F, T>(self: &Arc<Self>, closure: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        // Log lines of the other thread have the same subject.
        let span = Span::current();
        let work = move || {
            let connection = readers.check_out()?;
            let result = span.in_scope(|| in_transaction(&connection, closure));
            readers.check_in(connection);
            drop(permit);
            result
        };
        // It fails only while the runtime shuts down, or after a panic that was reported.
        tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
    }

    /// Returns the number of reads that run now.
    pub(super) fn in_use(&self) -> ReaderUse {
        let limit = self.settings.readers.max(1);
        ReaderUse { in_use: limit.saturating_sub(self.permits.available_permits()), limit }
    }

    /// Refuses reads from now on.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn check_out(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| connection::open_reader(&self.path, &self.settings), Ok)
    }

    fn check_in(&self, connection: Connection) {
        if connection.is_autocommit() && !self.permits.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

fn in_transaction<T>(
    connection: &Connection,
    closure: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.execute_batch("BEGIN")?;
    let result = closure(connection);
    // Nothing was written: this only ends the snapshot.
    let ended = connection.execute_batch("ROLLBACK");
    let value = result?;
    ended?;
    Ok(value)
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("path", &self.path).finish_non_exhaustive()
    }
}
