//! The handle that the engines hold.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{
    Schema, StoreError, StoreSettings, connection,
    readers::{ReaderUse, Readers},
    writer::{Write, WriteRequest, Writer},
};

/// An open database file. Clones share it; the file is closed when the last clone is dropped, or by
/// [`Database::close`].
#[derive(Debug, Clone)]
pub struct Database(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    settings: StoreSettings,
    readers: Arc<Readers>,
    /// None once the database is closed.
    writer: Mutex<Option<WriterHandle>>,
}

#[derive(Debug)]
struct WriterHandle {
    writes: mpsc::Sender<Box<dyn Write>>,
    /// Ends when the writer's thread has closed its connection.
    finished: oneshot::Receiver<()>,
}

impl std::fmt::Debug for dyn Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Write")
    }
}

impl Database {
    /// Opens a file, and creates it if it is missing. Blocks for a few busy timeouts at most.
    ///
    /// # Errors
    /// If the directory or the file cannot be used.
    pub fn open(path: &Path, schema: &Schema, settings: StoreSettings) -> Result<Self, StoreError> {
        let (connection, turnstile) = connection::open_writer(path, schema, &settings)?;
        let (writes, waiting) = mpsc::channel(settings.waiting_writes.max(1));
        let (finish, finished) = oneshot::channel();
        let writer = Writer {
            connection,
            turnstile,
            waiting,
            busy_timeout: settings.busy_timeout,
            commit_size: settings.commit_size,
            commit_time: settings.commit_time,
        };
        let work = move || {
            writer.work();
            drop(finish);
        };
        thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(work)
            .map_err(|error| StoreError::Thread(Arc::new(error)))?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            readers: Arc::new(Readers::new(path.to_owned(), settings.clone())),
            settings,
            writer: Mutex::new(Some(WriterHandle { writes, finished })),
        })))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs a closure in a write transaction, and returns when its commit is durable. If the
    /// closure fails, its changes are rolled back. Once it is in the writer's queue it runs even if
    /// the caller drops this future.
    ///
    /// # Errors
    /// The closure's own, or why the commit failed. Nothing is stored then, unless the disk itself
    /// failed in the commit ([`StoreError::may_have_happened`]).
    pub async fn write<F, T>(&self, closure: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let writes = self.writes().ok_or(StoreError::Closed)?;
        let (request, answer) = WriteRequest::new(closure);
        writes.send_timeout(Box::new(request), self.0.settings.enqueue_timeout).await.map_err(
            |error| match error {
                mpsc::error::SendTimeoutError::Timeout(_) => StoreError::Overloaded,
                mpsc::error::SendTimeoutError::Closed(_) => StoreError::Closed,
            },
        )?;
        drop(writes);
        answer.await.map_err(|_| StoreError::Lost)?
    }

    /// Checks that writes are stored: commits one that changes nothing but takes room on the disk, so
    /// that it fails when the disk is full or broken. An empty transaction would not reach the disk.
    ///
    /// # Errors
    /// Why a write is not stored now.
    pub async fn takes_writes(&self) -> Result<(), StoreError> {
        self.write(|sql| {
            // Setting the same number again writes the first page of the file. It is read in the
            // same transaction, because another program may migrate the file.
            let version: i64 = sql.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            Ok(sql.pragma_update(None, "user_version", version)?)
        })
        .await
    }

    /// Runs a closure that only reads. It sees one committed state throughout.
    ///
    /// # Errors
    /// The closure's own, or why the file cannot be read.
    pub async fn read<F, T>(&self, closure: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.0.readers.read(closure).await
    }

    /// Returns the number of reads that this process runs on the file now.
    pub fn readers(&self) -> ReaderUse {
        self.0.readers.in_use()
    }

    /// Finishes the writes in the writer's queue, and closes the file. Later calls fail with
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        let handle = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.readers.close();
        if let Some(WriterHandle { writes, finished }) = handle {
            drop(writes);
            // It always ends with an error, because the writer only drops the sender.
            let _ = finished.await;
        }
    }

    fn writes(&self) -> Option<mpsc::Sender<Box<dyn Write>>> {
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().map(|handle| handle.writes.clone())
    }
}
