//! Findings of `pushctl doctor` about the file.

use std::{fs, path::Path};

use push_sqlite::{Database, StoreError};
use rusqlite::Connection;

use crate::Finding;

/// `PRAGMA synchronous` when every commit is synced to the disk.
const FULL: i64 = 2;

/// Reads the settings and the size of the file.
///
/// # Errors
/// If the file cannot be read.
pub async fn inspect(database: &Database) -> Result<Vec<Finding>, StoreError> {
    let pragmas = |sql: &Connection| {
        let journal: String = sql.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = sql.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        Ok((journal, synchronous))
    };
    // On the connection that writes, because these are settings of a connection.
    let (journal, synchronous) = database.write(pragmas).await?;
    Ok(vec![
        Finding::ok("sqlite version", rusqlite::version()),
        journal_mode(journal),
        synchronous_mode(synchronous),
        size(database.path()),
    ])
}

fn journal_mode(journal: String) -> Finding {
    const SUBJECT: &str = "journal mode";
    if journal == "wal" {
        return Finding::ok(SUBJECT, journal);
    }
    let why = "the file system knows no shared memory, so readers and writers block each other";
    Finding::warning(SUBJECT, format!("{journal}: {why}"), "put the file on a local disk")
}

fn synchronous_mode(synchronous: i64) -> Finding {
    const SUBJECT: &str = "synchronous";
    if synchronous >= FULL {
        return Finding::ok(SUBJECT, "full: what was answered survives a power failure");
    }
    let detail = format!("{synchronous}: what was answered can be lost in a power failure");
    let mend = "this SQLite did not take `PRAGMA synchronous = full`: use programs that were built \
                with the SQLite that they bundle";
    Finding::error(SUBJECT, detail, mend)
}

fn size(path: &Path) -> Finding {
    const SUBJECT: &str = "file size";
    match fs::metadata(path) {
        Ok(metadata) => {
            let mib = metadata.len() as f64 / (1024.0 * 1024.0);
            Finding::ok(SUBJECT, format!("{mib:.1} MiB, {}", path.display()))
        }
        Err(error) => Finding::warning(
            SUBJECT,
            format!("{} cannot be looked at: {error}", path.display()),
            "if it was moved or deleted, restart the programs: they still write to the old file",
        ),
    }
}
