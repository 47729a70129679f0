//! What a file is for and which version its tables have.
//!
//! SQLite keeps two numbers in the file's header for this: `application_id` says whose file it
//! is, `user_version` how many migrations it has seen. Both are changed in the transaction of the
//! migration itself.

use std::path::Path;

use rusqlite::Connection;

use super::StoreError;

/// The tables of one kind of file.
#[derive(Debug)]
pub struct Schema {
    /// Whose file it is, for people: "push queue".
    pub purpose: &'static str,
    /// Whose file it is, in the header.
    pub application_id: i64,
    /// The migrations, oldest first. One that was released is never changed.
    pub migrations: &'static [&'static str],
}

impl Schema {
    /// The version of the file, if it is one of these; 0 if it is empty.
    pub(super) fn check(&self, connection: &Connection, path: &Path) -> Result<i64, StoreError> {
        // One state of the file, while others may be making it.
        connection.execute_batch("BEGIN")?;
        let found = self.found(connection, path);
        connection.execute_batch("ROLLBACK")?;
        found
    }

    /// Brings the file to the newest schema.
    pub(super) fn apply(&self, connection: &Connection, path: &Path) -> Result<(), StoreError> {
        let known = self.migrations.len() as i64;
        if self.check(connection, path)? == known {
            return Ok(());
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let migrated = self.migrate(connection, path);
        let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.execute_batch(end);
        migrated?;
        Ok(ended?)
    }

    fn migrate(&self, connection: &Connection, path: &Path) -> Result<(), StoreError> {
        // Another process may have migrated while this one waited for the lock.
        let found = self.found(connection, path)?;
        for (step, sql) in (1..).zip(self.migrations) {
            if step > found {
                connection.execute_batch(sql)?;
            }
        }
        connection.pragma_update(None, "application_id", self.application_id)?;
        connection.pragma_update(None, "user_version", self.migrations.len() as i64)?;
        Ok(())
    }

    /// As [`Schema::check`], inside a transaction.
    fn found(&self, connection: &Connection, path: &Path) -> Result<i64, StoreError> {
        let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let owner = number("PRAGMA application_id")?;
        let found = number("PRAGMA user_version")?;
        let known = self.migrations.len() as i64;
        let is_new = owner == 0 && found == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0;
        if !is_new && owner != self.application_id {
            Err(StoreError::Foreign { path: path.to_owned(), purpose: self.purpose })
        } else if found > known {
            Err(StoreError::Newer { path: path.to_owned(), found, known })
        } else {
            Ok(found)
        }
    }
}
