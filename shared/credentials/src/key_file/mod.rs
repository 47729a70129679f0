//! The keys in a file, so that several programs share them and an operator rotates them.
//!
//! The file is JSON, only its owner may read it, and it is replaced as a whole: a reader sees the
//! keys from before a change or from after it. A running program reads it again when it changed
//! ([`KeyFile::current`]); a file that cannot be read then leaves the keys as they were, so that a
//! mistake in the file does not lock out every device.
//!
//! A file that is replaced stays its owner's: an operator who rotates the keys as root must not
//! take them from the user that the services run as.

mod format;
mod write;

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use push_model::{text::without_mark, time::UnixMillis};
use tracing::{info, warn};

use crate::{
    identity::DeviceIdentity,
    issue_error::IssueError,
    key_set::{KeySet, Rotation, RotationError},
    token::TokenError,
};

/// The time between two looks of a running program at the file.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest time between two looks that tokens of unknown keys cause.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(1);

/// The largest file that is read, in bytes: more than twice what [`MAX_KEYS`](crate::MAX_KEYS)
/// keys take.
const MAX_SIZE: u64 = 16 * 1024;

/// The faults of a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is none.
    #[error("the device key file {} does not exist; `pushctl key create` makes one", .0.display())]
    Missing(PathBuf),
    /// It cannot be read.
    #[error("the device key file {} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// It cannot be written.
    #[error("the device key file {} cannot be written", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// There is one already.
    #[error("the device key file {} exists already; `pushctl key rotate` replaces its key", .0.display())]
    Exists(PathBuf),
    /// It holds something else.
    #[error(
        "{} is damaged or no device key file: restore it from a copy, or remove it and run `pushctl \
         key create`, after which every device must register again",
        .0.display()
    )]
    Format(PathBuf),
    /// It belongs to another user, to whom a new file cannot be given.
    #[error(
        "the device key file {} belongs to user {owner}, and only that user and root can replace it: \
         run the command as one of them",
        .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The id of the user.
        owner: u32,
    },
    /// No key could be made for it.
    #[error("no device key can be made")]
    Make(#[source] IssueError),
    /// Its key could not be replaced.
    #[error("the device key cannot be replaced")]
    Rotate(#[source] RotationError),
}

/// The keys of a file, as of now.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    state: RwLock<LoadedKeys>,
}

#[derive(Debug)]
struct LoadedKeys {
    keys: Arc<KeySet>,
    read: Version,
    /// The version that could not be used, which is logged once; `Some(None)` is a missing file.
    unusable: Option<Option<Version>>,
    /// The time of the last look.
    checked: Instant,
}

/// Distinguishes a file from the one that replaces it, and from itself after a change of its content
/// or its access.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    modified: Option<SystemTime>,
    /// The last change of content or access, in seconds and nanoseconds.
    changed: (i64, i64),
    len: u64,
    inode: u64,
}

impl Version {
    fn of(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            modified: file.modified().ok(),
            changed: (file.ctime(), file.ctime_nsec()),
            len: file.len(),
            inode: file.ino(),
        }
    }
}

impl KeyFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or holds no keys.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let (keys, read) = read(path)?;
        let keys = Arc::new(keys);
        let state = LoadedKeys { keys, read, unusable: None, checked: Instant::now() };
        Ok(Self { path: path.to_owned(), state: RwLock::new(state) })
    }

    /// Reads the file; makes it with a new key if there is none.
    ///
    /// # Errors
    /// If it can neither be read nor made.
    pub fn open_or_create(path: &Path, now: UnixMillis) -> Result<Self, KeyFileError> {
        match Self::create(path, now) {
            Ok(_) | Err(KeyFileError::Exists(_)) => Self::open(path),
            Err(error) => Err(error),
        }
    }

    /// Makes the file with a new key.
    ///
    /// # Errors
    /// If it exists, or cannot be written.
    pub fn create(path: &Path, now: UnixMillis) -> Result<KeySet, KeyFileError> {
        if path.exists() {
            return Err(KeyFileError::Exists(path.to_owned()));
        }
        let keys = KeySet::generate(now).map_err(KeyFileError::Make)?;
        let _lock =
            write::lock_folder(path).map_err(|e| KeyFileError::Write(path.to_owned(), e))?;
        write::create(path, &format::write(&keys))?;
        Ok(keys)
    }

    /// Adds a key to the file and lets the earlier ones end ([`KeySet::rotate`]). Two rotations at
    /// the same time happen one after the other.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the key cannot be replaced.
    pub fn rotate(
        path: &Path,
        rotation: Rotation,
        now: UnixMillis,
    ) -> Result<KeySet, KeyFileError> {
        // The file itself, so that a link to it stays one.
        let path = &fs::canonicalize(path).map_err(|error| unreadable(path, error))?;
        let failed = |error| KeyFileError::Write(path.clone(), error);
        let _lock = write::lock_folder(path).map_err(failed)?;
        let (mut keys, _) = read(path)?;
        keys.rotate(rotation, now).map_err(KeyFileError::Rotate)?;
        write::replace(path, &format::write(&keys))?;
        Ok(keys)
    }

    /// Its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys. Every five seconds the first caller looks whether the file changed, and reads it
    /// if so; this takes a few microseconds of file access, and the other callers do not wait.
    pub fn current(&self) -> Arc<KeySet> {
        let now = Instant::now();
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) < CHECK_INTERVAL {
            return state.keys.clone();
        }
        drop(state);
        self.check(now)
    }

    /// The device that this login at an MQTT broker proves ([`KeySet::authenticate`]). A token of an
    /// unknown key may be of one that another program signs with already, so the file is looked at
    /// then, if it was not within the last second.
    ///
    /// # Errors
    /// As [`KeySet::authenticate`].
    pub fn authenticate(
        &self,
        client_id: &str,
        username: &str,
        password: &[u8],
        now: UnixMillis,
    ) -> Result<DeviceIdentity, TokenError> {
        let found = self.current().authenticate(client_id, username, password, now);
        if found != Err(TokenError::UnknownKey) || !self.may_look_again(Instant::now()) {
            return found;
        }
        self.check(Instant::now()).authenticate(client_id, username, password, now)
    }

    fn may_look_again(&self, now: Instant) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(state.checked) >= UNKNOWN_KEY_INTERVAL
    }

    /// Reads the file again if it changed since it was read.
    fn check(&self, now: Instant) -> Arc<KeySet> {
        let (keys, known) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.checked = now;
            (state.keys.clone(), state.read.clone())
        };
        match fs::metadata(&self.path) {
            Ok(file) if Version::of(&file) == known => keys,
            found => self.reload(found.as_ref().ok().map(Version::of)).unwrap_or(keys),
        }
    }

    /// Reads the file, of which this version was found.
    fn reload(&self, found: Option<Version>) -> Option<Arc<KeySet>> {
        match read(&self.path) {
            Ok((keys, read)) => {
                let keys = Arc::new(keys);
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                state.keys = keys.clone();
                state.read = read;
                state.unusable = None;
                info!(path = %self.path.display(), keys = keys.keys().len(), "device keys read again");
                Some(keys)
            }
            Err(error) => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if state.unusable.replace(found.clone()) != Some(found) {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "the device keys stay as they were read before"
                    );
                }
                None
            }
        }
    }
}

fn unreadable(path: &Path, error: io::Error) -> KeyFileError {
    match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
        _ => KeyFileError::Read(path.to_owned(), error),
    }
}

fn read(path: &Path) -> Result<(KeySet, Version), KeyFileError> {
    let failed = |error| unreadable(path, error);
    let file = File::open(path).map_err(failed)?;
    let version = Version::of(&file.metadata().map_err(failed)?);
    let mut text = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut text).map_err(failed)?;
    let fits = u64::try_from(text.len()).is_ok_and(|len| len <= MAX_SIZE);
    let keys = fits.then(|| format::read(without_mark(&text))).flatten();
    let keys = keys.ok_or_else(|| KeyFileError::Format(path.to_owned()))?;
    Ok((keys, version))
}

#[cfg(test)]
mod tests;
