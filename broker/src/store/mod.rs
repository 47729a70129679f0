//! The file in which sessions and what waits in them outlive a restart.
//!
//! It is written anew, beside its place, and takes the place of the one before only when all of it is
//! on disk; so there is always a whole one, and a crash costs what changed since it was written. It
//! ends with a checksum over all that it holds: a file that was cut or changed is put aside as a whole,
//! because a part of it may say what never was.

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

/// Held while a broker uses the file.
const LOCK: &str = "mqtt-sessions.lock";

/// Only the owner reads and writes: payloads are in it.
const MODE: u32 = 0o600;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written.
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    /// Another broker saves its sessions there.
    #[error("another broker uses {0}: give each a data directory of its own")]
    InUse(PathBuf),
    /// It was written by a later version.
    #[error(
        "{path} has the format {version}, which this version does not know: run the version that wrote it, or move it away and lose what waits in it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// It is not what a broker wrote.
    #[error("{path} is damaged in line {line}: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What was found at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) sessions: usize,
    pub(super) messages: usize,
    /// Sessions and messages beyond the bounds of now.
    pub(super) no_room: usize,
}

/// The file of one broker, which no other uses meanwhile.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// One writer at a time.
    writing: Mutex<()>,
    _lock: File,
}

impl Store {
    /// That of this data directory.
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

    /// Puts what was saved into these sessions, which are empty. After an error some of it may be in
    /// them.
    pub(super) fn load(&self, sessions: &Sessions) -> Result<Restored, StoreError> {
        match File::open(&self.path) {
            Ok(file) => read::read(&self.path, file, sessions, Clocks::now()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Saves these sessions. It waits for the disk.
    pub(super) fn save(&self, sessions: &Sessions) -> Result<(), StoreError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = self.path.with_extension("new");
        let saved = write::write(&temporary, sessions, Clocks::now())
            .and_then(|()| fs::rename(&temporary, &self.path))
            .and_then(|()| File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all());
        saved.map_err(|error| self.io(error))
    }

    /// Moves a file that cannot be read out of the way, in place of one that was moved before.
    pub(super) fn put_aside(&self) -> Result<PathBuf, StoreError> {
        let aside = self.path.with_extension("damaged");
        fs::rename(&self.path, &aside).map_err(|error| self.io(error))?;
        Ok(aside)
    }

    /// The error of a writer that did not come to its end.
    pub(super) fn not_written(&self) -> StoreError {
        self.io(io::ErrorKind::Interrupted.into())
    }

    fn io(&self, error: io::Error) -> StoreError {
        StoreError::Io(self.path.clone(), error)
    }
}

#[cfg(test)]
mod tests;
