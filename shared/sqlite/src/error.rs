//! The failures of database operations, by SQLite's result codes. Errors are cheap to clone, because a
//! failed commit gives the same error to all its writes.

use std::{io, path::PathBuf, sync::Arc};

use rusqlite::ErrorCode;

/// The failure of an operation of the embedded store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The directory of the file cannot be created, or is not writable.
    #[error("cannot write in the directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A file that is there cannot be written.
    #[error("cannot write {}, which may be another user's", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The file cannot be opened.
    #[error("{} is a directory, and no database", .path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("cannot open the database {}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: Arc<rusqlite::Error>,
    },
    /// The file has other contents.
    #[error("{} is not the file of a {purpose}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The purpose that the file should have.
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
        /// Schema version of the file.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    /// The disk is full.
    #[error("the disk of the database is full")]
    Full(#[source] Arc<rusqlite::Error>),
    /// Another process has been writing for longer than the busy timeout.
    #[error("another process keeps the database locked")]
    Busy(#[source] Arc<rusqlite::Error>),
    /// The file is no database any more.
    #[error("the file is not a database")]
    NotADatabase(#[source] Arc<rusqlite::Error>),
    /// Any other failure of SQLite.
    #[error("the database failed")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// The writer's thread could not be started.
    #[error("cannot start the thread that writes")]
    Thread(#[source] Arc<io::Error>),
    /// Stored data is not as this program writes it.
    #[error("the database holds something unreadable: {0}")]
    Unreadable(String),
    /// Too many writes were waiting for too long.
    #[error("too many writes are waiting for the database")]
    Overloaded,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
    /// The database closed before it answered a write that was in its queue.
    #[error("the database closed before it answered")]
    Lost,
}

impl StoreError {
    /// Returns true if the file itself is at fault, so that no retry can help.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::NotADatabase(_)
            | Self::Unreadable(_) => true,
            Self::Directory { .. }
            | Self::File { .. }
            | Self::IsDirectory { .. }
            | Self::Open { .. }
            | Self::Full(_)
            | Self::Busy(_)
            | Self::Sqlite(_)
            | Self::Thread(_)
            | Self::Overloaded
            | Self::Closed
            | Self::Lost => false,
        }
    }

    /// Returns true if the write may be stored in spite of the error. A transaction that fails is rolled
    /// back, unless the disk itself fails in its commit. An unknown code counts as "may be stored".
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Lost => true,
            Self::Sqlite(error) => !matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::ReadOnly
                        | ErrorCode::CannotOpen
                        | ErrorCode::PermissionDenied
                        | ErrorCode::OutOfMemory
                )
            ),
            Self::Directory { .. }
            | Self::File { .. }
            | Self::IsDirectory { .. }
            | Self::Open { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Full(_)
            | Self::Busy(_)
            | Self::NotADatabase(_)
            | Self::Thread(_)
            | Self::Unreadable(_)
            | Self::Overloaded
            | Self::Closed => false,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let is_of_another_type = matches!(
            error,
            rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)
        );
        let code = error.sqlite_error_code();
        let source = Arc::new(error);
        match code {
            Some(ErrorCode::DiskFull) => Self::Full(source),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(source),
            Some(ErrorCode::DatabaseCorrupt) => Self::Unreadable(source.to_string()),
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(source),
            None if is_of_another_type => Self::Unreadable(source.to_string()),
            _ => Self::Sqlite(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn of(code: i32) -> StoreError {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn a_code_says_whether_another_try_can_help_and_whether_it_may_have_happened() {
        let passing = [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_BUSY_SNAPSHOT,
            ffi::SQLITE_FULL,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_READONLY_DBMOVED,
            ffi::SQLITE_CANTOPEN,
        ];
        for code in passing {
            let error = of(code);
            assert!(!error.is_permanent() && !error.may_have_happened(), "{code}: {error:?}");
        }
        for code in [ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_ERROR] {
            let error = of(code);
            assert!(!error.is_permanent() && error.may_have_happened(), "{code}: {error:?}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX, ffi::SQLITE_NOTADB] {
            assert!(of(code).is_permanent(), "{code}");
        }
        let text_for_a_number =
            rusqlite::Error::InvalidColumnType(0, "slot".to_owned(), rusqlite::types::Type::Text);
        assert!(StoreError::from(text_for_a_number).is_permanent());
    }
}
