//! The file in which sessions and their messages survive a restart.
//!
//! A new file is written beside the old one and replaces it only when all of it is on disk. So there is
//! always a complete file, and a crash loses only what changed since it was written. The file ends with
//! a checksum. A truncated or changed file is moved aside as a whole, because a part of it cannot be
//! trusted.

mod format;
mod read;
mod write;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::{clocks::Clocks, sessions::Sessions};

/// The file, in the data directory.
const FILE: &str = "mqtt-sessions.ndjson";

/// The lock that a broker holds while it uses the file.
const LOCK: &str = "mqtt-sessions.lock";

/// Only the owner may read and write the file, because it holds payloads.
const MODE: u32 = 0o600;

/// The reasons for which the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written.
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    /// Another broker uses the file.
    #[error("another broker uses {0}: give each a data directory of its own")]
    InUse(PathBuf),
    /// A later version wrote the file.
    #[error(
        "{path} has the format {version}, which this version does not know: run the version that wrote it, or move the file away and lose its messages"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// The file is not as a broker wrote it.
    #[error("{path} is damaged in line {line}: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        problem: &'static str,
    },
}

/// The sessions and messages that were found at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) sessions: usize,
    pub(super) messages: usize,
    /// Sessions and messages beyond the present bounds.
    pub(super) no_room: usize,
}

/// The file of one broker, locked against others.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// One writer at a time.
    writing: Mutex<()>,
    _lock: File,
}

impl Store {
    /// Opens the file of this data directory.
    pub(super) fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let lock = data_dir.join(LOCK);
        let io = |error| StoreError::Io(lock.clone(), error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(MODE);
        let file = options.open(&lock).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(lock)),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        Ok(Self { path: data_dir.join(FILE), writing: Mutex::new(()), _lock: file })
    }

    /// Restores the saved sessions into these, which are empty. After an error some may be restored.
    pub(super) fn load(&self, sessions: &Sessions) -> Result<Restored, StoreError> {
        match File::open(&self.path) {
            Ok(file) => read::read(&self.path, file, sessions, Clocks::now()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Saves these sessions. Blocks until they are on disk.
    pub(super) fn save(&self, sessions: &Sessions) -> Result<(), StoreError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = self.path.with_extension("new");
        let saved = write::write(&temporary, sessions, Clocks::now())
            .and_then(|()| fs::rename(&temporary, &self.path))
            .and_then(|()| File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all());
        saved.map_err(|error| self.io(error))
    }

    /// Moves a damaged file aside, over one that was moved aside before.
    pub(super) fn put_aside(&self) -> Result<PathBuf, StoreError> {
        let aside = self.path.with_extension("damaged");
        fs::rename(&self.path, &aside).map_err(|error| self.io(error))?;
        Ok(aside)
    }

    /// Returns the error of an interrupted write.
    pub(super) fn not_written(&self) -> StoreError {
        self.io(io::ErrorKind::Interrupted.into())
    }

    fn io(&self, error: io::Error) -> StoreError {
        StoreError::Io(self.path.clone(), error)
    }
}

#[cfg(test)]
mod tests;
