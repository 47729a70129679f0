//! A value made from files, made again when their contents change.
//!
//! Contents are compared, not times: Kubernetes replaces a directory by a link, copies keep times,
//! and two writes may fall into one tick of the file system's clock. The files are small. For the
//! comparison a hash is kept, so that a private key is not held a second time.
//!
//! A pair of files is rarely replaced in one step. In between they do not fit together; then the
//! earlier value stays, which is logged once for each such state, and the next look finds both.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use sha2::{Digest as _, Sha256};

use super::{FileError, PemFile};

type Make<T> = Box<dyn Fn(&[PemFile]) -> Result<T, FileError> + Send + Sync>;

/// A hash of all contents; none while one of the files cannot be read.
type Fingerprint = Option<[u8; 32]>;

/// A value made from files.
pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    make: Make<T>,
    current: RwLock<Arc<T>>,
    /// The contents of the files when they were last read, whether or not they could be used.
    last_read: Mutex<Fingerprint>,
}

impl<T> Watched<T> {
    /// Makes the value for the first time.
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        make: impl Fn(&[PemFile]) -> Result<T, FileError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let files = read(&paths)?;
        let current = RwLock::new(Arc::new(make(&files)?));
        let last_read = Mutex::new(Some(fingerprint(&files)));
        Ok(Self { paths, make: Box::new(make), current, last_read })
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files, which blocks, and makes the value again if they have changed.
    pub(crate) fn refresh(&self) {
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let files = read(&self.paths);
        let found = files.as_ref().ok().map(|files| fingerprint(files));
        if *last_read == found {
            return;
        }
        *last_read = found;
        match files.and_then(|files| (self.make)(&files)) {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!(files = ?self.paths, "changed certificate files are in use");
            }
            Err(error) => tracing::warn!(
                runbook = "keys-or-certificates-cannot-be-read",
                files = ?self.paths,
                error = &error as &dyn std::error::Error,
                "changed certificate files cannot be used; the certificates from before stay in use"
            ),
        }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.paths).finish()
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<PemFile>, FileError> {
    paths.iter().map(|path| PemFile::read(path)).collect()
}

fn fingerprint(files: &[PemFile]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for file in files {
        hash.update((file.bytes().len() as u64).to_be_bytes());
        hash.update(file.bytes());
    }
    hash.finalize().into()
}
