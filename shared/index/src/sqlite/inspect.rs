//! What `pushctl doctor` shows of the file.

use std::fs;

use push_sqlite::{Database, StoreError};
use rusqlite::Connection;

use crate::{Finding, Level};

/// `PRAGMA synchronous` when every commit is synced to the disk.
const FULL: i64 = 2;

pub(super) async fn inspect(database: &Database) -> Result<Vec<Finding>, StoreError> {
    let pragmas = |sql: &Connection| {
        let journal: String = sql.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = sql.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        Ok((journal, synchronous))
    };
    // On the connection that writes, because these are settings of a connection.
    let (journal, synchronous) = database.write(pragmas).await?;
    let path = database.path();
    let finding =
        |level, subject: &str, detail| Finding { level, subject: subject.to_owned(), detail };
    let size = match fs::metadata(path) {
        Ok(metadata) => {
            let mib = metadata.len() as f64 / (1024.0 * 1024.0);
            finding(Level::Ok, "file size", format!("{mib:.1} MiB, {}", path.display()))
        }
        Err(error) => {
            let detail = format!("{} cannot be looked at: {error}", path.display());
            finding(Level::Warning, "file size", detail)
        }
    };
    Ok(vec![
        finding(Level::Ok, "sqlite version", rusqlite::version().to_owned()),
        if journal == "wal" {
            finding(Level::Ok, "journal mode", journal)
        } else {
            let why = "the file system knows no shared memory, so readers and writers block \
                       each other; put the file on a local disk";
            finding(Level::Warning, "journal mode", format!("{journal}: {why}"))
        },
        if synchronous >= FULL {
            finding(
                Level::Ok,
                "synchronous",
                "full: what was answered survives a power failure".to_owned(),
            )
        } else {
            let detail = format!("{synchronous}: what was answered can be lost in a power failure");
            finding(Level::Error, "synchronous", detail)
        },
        size,
    ])
}
