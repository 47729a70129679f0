//! The flag about the keys that seal the credentials of providers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use push_credentials::{KeyFileError, SealFile};
use push_model::time::UnixMillis;

use crate::{
    settings,
    settings::{ConfigErrors, path},
};

/// The key file of a data directory.
pub const SEAL_FILE: &str = "seal-keys.json";

settings! {
    /// The flag about seal keys.
    pub struct SealArgs, "FCM, APNs, Web Push, webhooks" => SealValues {
        /// Unseal the accounts at providers with the keys of this file, which `pushctl key seal` makes.
        /// `pushctl` takes `seal-keys.json` in its data directory
        seal_key: Option<PathBuf> = ["FILE"] path;
    }
}

/// The checked setting of seal keys.
#[derive(Debug, Clone)]
pub struct SealSettings {
    seal_key: Option<PathBuf>,
}

impl SealArgs {
    /// Checks the flag; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<SealSettings> {
        let SealValues { seal_key } = self.values(errors)?;
        Some(SealSettings { seal_key })
    }
}

impl SealSettings {
    /// Reads the file that is set; none without one.
    ///
    /// # Errors
    /// If it cannot be read, or holds no keys.
    pub fn open(&self) -> Result<Option<Arc<SealFile>>, KeyFileError> {
        self.seal_key.as_deref().map(|path| SealFile::open(path).map(Arc::new)).transpose()
    }

    /// Reads the file that is set, or else the one in the data directory; none if neither is there.
    ///
    /// # Errors
    /// If there is one, and it cannot be read or holds no keys.
    pub fn open_if_there(&self, data_dir: &Path) -> Result<Option<Arc<SealFile>>, KeyFileError> {
        match &self.seal_key {
            None if !self.key_file_in(data_dir).exists() => Ok(None),
            _ => SealFile::open(&self.key_file_in(data_dir)).map(Arc::new).map(Some),
        }
    }

    /// Reads the file that is set, or else the one in the data directory, which is made if it is missing.
    ///
    /// # Errors
    /// If it can be neither read nor made.
    pub fn open_or_create_in(&self, data_dir: &Path) -> Result<Arc<SealFile>, KeyFileError> {
        match &self.seal_key {
            Some(path) => SealFile::open(path),
            None => SealFile::open_or_create(&self.key_file_in(data_dir), UnixMillis::now()),
        }
        .map(Arc::new)
    }

    /// Returns the path of the file that is set, or else of the one in the data directory.
    pub fn key_file_in(&self, data_dir: &Path) -> PathBuf {
        self.seal_key.clone().unwrap_or_else(|| data_dir.join(SEAL_FILE))
    }
}
