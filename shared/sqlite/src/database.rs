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
    readers::Readers,
    writer::{Call, Write, Writer},
};

/// An open database file. Clones share it; it closes with the last one, or by
/// [`Database::close`].
#[derive(Debug, Clone)]
pub struct Database(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    settings: StoreSettings,
    readers: Arc<Readers>,
    /// Both gone once the database is closed.
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
    /// Opens a file, or makes it. Blocks for at most a few busy timeouts.
    ///
    /// # Errors
    /// What is wrong with the directory or the file.
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

    /// Runs a closure in a write transaction, and answers when it is durable. An error of the
    /// closure undoes what it did. Once it is handed over it runs, also if the caller goes away.
    ///
    /// # Errors
    /// The closure's own, or what went wrong with the commit. Nothing is stored then, unless
    /// the disk itself failed in the commit.
    pub async fn write<F, T>(&self, closure: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let writes = self.writes().ok_or(StoreError::Closed)?;
        let (call, answer) = Call::new(closure);
        writes.send_timeout(Box::new(call), self.0.settings.write_patience).await.map_err(
            |error| match error {
                mpsc::error::SendTimeoutError::Timeout(_) => StoreError::Overloaded,
                mpsc::error::SendTimeoutError::Closed(_) => StoreError::Closed,
            },
        )?;
        drop(writes);
        answer.await.map_err(|_| StoreError::Lost)?
    }

    /// Runs a closure that only reads, on one committed state.
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

    /// Finishes the writes that were handed over, and closes the file. Later calls are answered
    /// with [`StoreError::Closed`].
    pub async fn close(&self) {
        let handle = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.readers.close();
        if let Some(WriterHandle { writes, finished }) = handle {
            drop(writes);
            // It only ever ends by its sender being dropped.
            let _ = finished.await;
        }
    }

    fn writes(&self) -> Option<mpsc::Sender<Box<dyn Write>>> {
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().map(|handle| handle.writes.clone())
    }
}
