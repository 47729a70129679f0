//! Why a database file could not be used, by the codes of SQLite. Errors are cheap to copy,
//! because a commit that fails fails every write that was in it.

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
    /// The file is no database any more.
    #[error("the file is not a database")]
    NotADatabase(#[source] Arc<rusqlite::Error>),
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
    /// The database closed before it answered a write that it had taken.
    #[error("the database closed before it answered")]
    Lost,
}

impl StoreError {
    /// Whether the file itself is wrong, so that no other try can help.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::NotADatabase(_)
            | Self::Unreadable(_) => true,
            Self::Directory { .. }
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

    /// Whether what was asked may be stored all the same. A transaction that fails is undone,
    /// unless the disk itself fails in its commit; of a code that is not known here nothing is
    /// assumed.
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
