//! Turns between processes that write to one file.
//!
//! SQLite lets one process write at a time, and has the others poll with growing pauses. A process
//! that commits back to back leaves the file unlocked for microseconds only, so another one that
//! polls every 100 ms may never find it unlocked. Hence a second lock, the turnstile, is held only
//! *while waiting* for SQLite's: the busy process must wait at the turnstile before it can begin
//! again, and the waiting one gets in.
//!
//! It is a courtesy: a process that has waited for long goes on without it, and SQLite still keeps
//! the writers apart. It is an advisory lock on a file beside the database, never on the database
//! itself, where closing it would drop SQLite's own locks.

use std::{
    ffi::OsString,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::permissions;

/// Pause between attempts to lock. Shorter than any commit.
const RETRY_PAUSE: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(super) struct Turnstile(File);

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a File);

impl Turnstile {
    /// Opens the lock file beside the database.
    pub(super) fn open(database: &Path) -> io::Result<Self> {
        let path = Self::file(database);
        let file = permissions::for_owner().create(true).truncate(false).write(true).open(path)?;
        Ok(Self(file))
    }

    pub(super) fn file(database: &Path) -> PathBuf {
        let mut path = OsString::from(database);
        path.push(permissions::TURN_SUFFIX);
        path.into()
    }

    /// Locks the turnstile; none if that takes longer than `timeout`, or if the file system has no
    /// locks. Blocks its thread.
    pub(super) fn enter(&self, timeout: Duration) -> Option<Turn<'_>> {
        let since = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(()) => return Some(Turn(&self.0)),
                Err(TryLockError::WouldBlock) if since.elapsed() < timeout => {
                    // On the writer's own thread, which has nothing else to do.
                    thread::park_timeout(RETRY_PAUSE);
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Closing the file would release the lock as well.
        let _ = self.0.unlock();
    }
}
