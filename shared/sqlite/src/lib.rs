//! The store under the embedded engines: one SQLite file, used by several tasks and processes.
//!
//! Constraints it lives under:
//! - A write is answered only after its transaction is committed with `synchronous=FULL`, so that
//!   an answered write survives a power failure.
//! - A commit costs a sync of the disk whatever its size, and SQLite has one writer. So all
//!   writes of a process go through one thread, which commits all waiting writes together (group
//!   commit). A single write does not wait for others.
//! - Other processes use the file at the same time. SQLite's lock makes their writes exclusive, and
//!   the [`turnstile`] makes the lock fair.
//!
//! Structures: [`Database`] sends writes to the [`writer`] over a bounded channel, and runs reads
//! on a few connections ([`readers`]) that see the last commit and block no write (WAL). `schema`
//! checks the purpose of a file and the version of its tables, `permissions` who can read it.
//!
//! Failures: a write that fails is rolled back alone, to its savepoint. When the
//! transaction fails (a full disk, a lock held too long), none of its writes is stored, and all get
//! the error. Nothing is retried here: the callers decide that.

mod connection;
mod database;
mod disk;
mod error;
mod permissions;
mod readers;
mod schema;
#[cfg(test)]
mod tests;
mod turnstile;
mod writer;

use std::time::Duration;

pub use self::error::StoreError;
pub use self::{
    database::Database,
    disk::DiskUse,
    permissions::{Exposure, exposure},
    readers::ReaderUse,
    schema::Schema,
};

/// Timeouts and limits of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The time that a write waits for another process that is writing.
    pub busy_timeout: Duration,
    /// Length of the writer's queue. Further writes wait for room in it.
    pub waiting_writes: usize,
    /// The time that a write waits for room in the queue before it is refused.
    pub enqueue_timeout: Duration,
    /// The most writes in one commit.
    pub commit_size: usize,
    /// The time for which writes join one commit, bounded so that other processes can write too.
    pub commit_time: Duration,
    /// The most reads that run at the same time, each on its own connection.
    pub readers: usize,
    /// The page cache of one connection, in KiB.
    pub cache_kib: u32,
    /// The size to which the write-ahead log file is truncated after a checkpoint, in bytes.
    pub log_limit: u32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            waiting_writes: 1024,
            enqueue_timeout: Duration::from_secs(5),
            commit_size: 256,
            commit_time: Duration::from_millis(20),
            readers: 4,
            cache_kib: 16 * 1024,
            log_limit: 64 * 1024 * 1024,
        }
    }
}
