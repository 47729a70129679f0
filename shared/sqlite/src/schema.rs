//! The purpose of a file and the version of its tables.
//!
//! SQLite has two numbers in the file's header for this: `application_id` identifies the kind of
//! file, `user_version` is the number of migrations applied. Both are changed in the transaction of
//! the migration itself.

use std::path::Path;

use rusqlite::Connection;

use super::StoreError;

/// The tables of one kind of file.
#[derive(Debug)]
pub struct Schema {
    /// The kind of file as error messages name it: "push queue".
    pub purpose: &'static str,
    /// The kind of file, in the header.
    pub application_id: i64,
    /// The migrations, oldest first. A migration must not change once it is released.
    pub migrations: &'static [&'static str],
}

impl Schema {
    /// The schema version of the file, 0 if it is empty. An error if it is another kind of file, or
    /// newer.
    pub(super) fn check(&self, connection: &Connection, path: &Path) -> Result<i64, StoreError> {
        // A transaction, so that both numbers belong to one state while another process may be
        // creating the file.
        connection.execute_batch("BEGIN")?;
        let found = self.version(connection, path);
        connection.execute_batch("ROLLBACK")?;
        found
    }

    /// Migrates the file to the newest schema.
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
        // Another process may have migrated the file while this one waited for the lock.
        let found = self.version(connection, path)?;
        for (step, sql) in (1..).zip(self.migrations) {
            if step > found {
                connection.execute_batch(sql)?;
            }
        }
        connection.pragma_update(None, "application_id", self.application_id)?;
        connection.pragma_update(None, "user_version", self.migrations.len() as i64)?;
        Ok(())
    }

    /// Checks the schema as [`Schema::check`] does, inside a transaction.
    fn version(&self, connection: &Connection, path: &Path) -> Result<i64, StoreError> {
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
