//! The store under the embedded engines: one SQLite file, used by several tasks and processes.
//!
//! Constraints it lives under:
//! - An answer is a promise. A write is answered only after its transaction is committed with
//!   `synchronous=FULL`: it survives a power failure.
//! - A commit costs a sync of the disk whatever its size, and SQLite has one writer. So all
//!   writes of a process go through one thread that commits everything that is waiting at once
//!   (group commit). A write alone never waits for company.
//! - Other processes use the file at the same time. SQLite's lock keeps them apart, and the
//!   [`turnstile`] lets each have its turn.
//!
//! Structures: [`Database`] hands writes to the [`writer`] over a bounded channel, and runs reads
//! on a few connections ([`readers`]) that see the last commit and block nobody (WAL).
//!
//! Work that gets stuck: a write that fails is undone alone, by its savepoint. When the
//! transaction fails (a full disk, a lock held too long), everybody in it is told; none of it is
//! stored. Nothing is tried again here: the callers know what is worth another try.

mod connection;
mod database;
mod error;
mod readers;
mod schema;
#[cfg(test)]
mod tests;
mod turnstile;
mod writer;

use std::time::Duration;

pub use self::error::StoreError;
pub use self::{database::Database, schema::Schema};

/// How a database file is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long a write waits for another process that is writing.
    pub busy_timeout: Duration,
    /// How many writes may wait for the writer; the next one waits outside.
    pub waiting_writes: usize,
    /// How long a write waits outside before it is refused.
    pub write_patience: Duration,
    /// The most writes in one commit.
    pub commit_size: usize,
    /// How long a commit goes on taking in writes, so that other processes get their turn.
    pub commit_time: Duration,
    /// How many reads run at once, each on its own connection.
    pub readers: usize,
    /// The page cache of one connection, in KiB.
    pub cache_kib: u32,
    /// What is kept of the write-ahead log file after a checkpoint, in bytes.
    pub log_limit: u32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            waiting_writes: 1024,
            write_patience: Duration::from_secs(5),
            commit_size: 256,
            commit_time: Duration::from_millis(20),
            readers: 4,
            cache_kib: 16 * 1024,
            log_limit: 64 * 1024 * 1024,
        }
    }
}
