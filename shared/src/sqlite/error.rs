//! Why a database file could not be used. Errors are cheap to copy, because a commit that fails
//! is everybody's failure who was in it.

use std::{io, path::PathBuf, sync::Arc};

use rusqlite::ErrorCode;

/// Why the embedded store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The directory of the file cannot be made, or nothing can be written in it.
    #[error("cannot write in the directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// The file cannot be opened.
    #[error("cannot open the database {}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Arc<rusqlite::Error>,
    },
    /// The file is something else.
    #[error("{} is not the file of a {purpose}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it should be.
        purpose: &'static str,
    },
    /// The file's schema is newer than this program.
    #[error(
        "{} was written by a newer version of this program: its schema is {found}, this program \
         knows up to {known}", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// The disk is full.
    #[error("the disk of the database is full")]
    Full(#[source] Arc<rusqlite::Error>),
    /// Another process has been writing for longer than the busy timeout.
    #[error("another process keeps the database locked")]
    Busy(#[source] Arc<rusqlite::Error>),
    /// Any other failure of SQLite.
    #[error("the database failed")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// The system gave no thread to write on.
    #[error("cannot start the thread that writes")]
    Thread(#[source] Arc<io::Error>),
    /// What is stored cannot be what this program wrote.
    #[error("the database holds something unreadable: {0}")]
    Unreadable(String),
    /// Too many writes were waiting for too long.
    #[error("too many writes are waiting for the database")]
    Overloaded,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// Whether the file itself is wrong, so that no other try can help.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::Newer { .. } | Self::Unreadable(_))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let source = Arc::new(error);
        match code {
            Some(ErrorCode::DiskFull) => Self::Full(source),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(source),
            Some(ErrorCode::DatabaseCorrupt) => Self::Unreadable(source.to_string()),
            _ => Self::Sqlite(source),
        }
    }
}
