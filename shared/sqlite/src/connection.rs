//! Opening connections: one for writes, several for reads.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OpenFlags};

use super::{Schema, StoreError, StoreSettings, permissions, turnstile::Turnstile};

/// The prepared statements that a connection caches.
const PREPARED_STATEMENTS: usize = 64;

/// Opens the connection for writes. Creates the file, its directory and its tables if they are
/// missing, readable for their owner only.
pub(super) fn open_writer(
    path: &Path,
    schema: &Schema,
    settings: &StoreSettings,
) -> Result<(Connection, Turnstile), StoreError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let unusable = |source| StoreError::Directory { path: directory.into(), source };
    permissions::make_directory(directory).map_err(|error| unusable(Arc::new(error)))?;
    // SQLite would only report "unable to open database file"; this error has the reason.
    let turnstile = Turnstile::open(path).map_err(|error| {
        let (source, file) = (Arc::new(error), Turnstile::file(path));
        match file.exists() {
            true => StoreError::File { path: file, source },
            false => unusable(source),
        }
    })?;
    permissions::make_file(path).map_err(|error| unusable(Arc::new(error)))?;

    let prepare = || {
        let connection = open(path, settings)?;
        // Before anything is changed, because it may be the file of another program.
        schema.check(&connection, path)?;
        permissions::tighten(path);
        // Two processes that switch a new file to WAL at once can deadlock each other.
        let _turn = turnstile.enter(settings.busy_timeout);
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "journal_size_limit", settings.log_limit)?;
        schema.apply(&connection, path)?;
        Ok(connection)
    };
    let connection = prepare().map_err(|error| at_open(error, path, schema))?;
    Ok((connection, turnstile))
}

/// Opens a connection for reads, on a file that [`open_writer`] has prepared.
pub(super) fn open_reader(path: &Path, settings: &StoreSettings) -> Result<Connection, StoreError> {
    let connection = open(path, settings)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn open(path: &Path, settings: &StoreSettings) -> Result<Connection, StoreError> {
    // Without SQLITE_OPEN_URI, so that a path that begins with `file:` is not read as a URI.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(settings.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    // A negative size is in KiB, a positive one in pages.
    connection.pragma_update(None, "cache_size", -i64::from(settings.cache_kib))?;
    Ok(connection)
}

/// Adds the path to an error of opening the file.
fn at_open(error: StoreError, path: &Path, schema: &Schema) -> StoreError {
    let path: PathBuf = path.into();
    match error {
        StoreError::NotADatabase(_) => StoreError::Foreign { path, purpose: schema.purpose },
        // SQLite says only that it cannot open it.
        StoreError::Sqlite(_) if path.is_dir() => StoreError::IsDirectory { path },
        StoreError::Sqlite(source) => StoreError::Open { path, source },
        other => other,
    }
}
