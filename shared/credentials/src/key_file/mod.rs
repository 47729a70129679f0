//! The keys in a file, so that several programs share them and an operator rotates them: the keys that sign
//! devices' logins, and those that seal providers' credentials ([`StoredKeys`]).
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
    fmt,
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
    token::{Purpose, TokenError},
};

/// The words for a kind of keys in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyWords {
    /// One of them.
    pub name: &'static str,
    /// The command that makes the file.
    pub create: &'static str,
    /// The command that replaces a key.
    pub rotate: &'static str,
    /// The consequence of losing the file.
    pub lost: &'static str,
}

/// Keys that a file can keep.
pub trait StoredKeys: Sized + fmt::Debug {
    /// Their words in messages.
    const WORDS: KeyWords;

    /// Reads the text of a file; `None` if it is something else.
    fn read(text: &[u8]) -> Option<Self>;

    /// Returns the text that keeps them.
    fn write(&self) -> Vec<u8>;

    /// Makes the first key.
    ///
    /// # Errors
    /// If the operating system gives no random numbers.
    fn generate(now: UnixMillis) -> Result<Self, IssueError>;

    /// Adds a key that replaces the others in time.
    ///
    /// # Errors
    /// If there is no room for another, or none can be made.
    fn rotate(&mut self, rotation: Rotation, now: UnixMillis) -> Result<(), RotationError>;

    /// Returns how many there are.
    fn count(&self) -> usize;
}

impl StoredKeys for KeySet {
    const WORDS: KeyWords = KeyWords {
        name: "device key",
        create: "pushctl key create",
        rotate: "pushctl key rotate",
        lost: "every device must register again",
    };

    fn read(text: &[u8]) -> Option<Self> {
        format::read(text)
    }

    fn write(&self) -> Vec<u8> {
        format::write(self)
    }

    fn generate(now: UnixMillis) -> Result<Self, IssueError> {
        Self::generate(now)
    }

    fn rotate(&mut self, rotation: Rotation, now: UnixMillis) -> Result<(), RotationError> {
        Self::rotate(self, rotation, now)
    }

    fn count(&self) -> usize {
        self.keys().len()
    }
}

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
    #[error("the {} file {} does not exist; `{}` makes one", .0.name, .1.display(), .0.create)]
    Missing(KeyWords, PathBuf),
    /// It cannot be read.
    #[error("the {} file {} cannot be read", .0.name, .1.display())]
    Read(KeyWords, PathBuf, #[source] io::Error),
    /// It cannot be written.
    #[error("the {} file {} cannot be written", .0.name, .1.display())]
    Write(KeyWords, PathBuf, #[source] io::Error),
    /// There is one already.
    #[error("the {} file {} exists already; `{}` replaces its key", .0.name, .1.display(), .0.rotate)]
    Exists(KeyWords, PathBuf),
    /// It holds something else.
    #[error(
        "{} is damaged or no {} file: restore it from a copy, or remove it and run `{}`, after which {}",
        .1.display(), .0.name, .0.create, .0.lost
    )]
    Format(KeyWords, PathBuf),
    /// It belongs to another user, to whom a new file cannot be given.
    #[error(
        "the {} file {} belongs to user {owner}, and only that user and root can replace it: \
         run the command as one of them",
        .words.name, .path.display()
    )]
    Owner {
        /// The kind of its keys.
        words: KeyWords,
        /// The file.
        path: PathBuf,
        /// The id of the user.
        owner: u32,
    },
    /// No key could be made for it.
    #[error("no {} can be made", .0.name)]
    Make(KeyWords, #[source] IssueError),
    /// Its key could not be replaced.
    #[error("the {} cannot be replaced", .0.name)]
    Rotate(KeyWords, #[source] RotationError),
}

/// The file of the keys that sign devices' logins.
pub type KeyFile = StoredKeyFile<KeySet>;

/// The keys of a file, as of now.
#[derive(Debug)]
pub struct StoredKeyFile<K> {
    path: PathBuf,
    state: RwLock<LoadedKeys<K>>,
}

#[derive(Debug)]
struct LoadedKeys<K> {
    keys: Arc<K>,
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

impl<K: StoredKeys> StoredKeyFile<K> {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or holds no keys.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let (keys, read) = read::<K>(path)?;
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
            Ok(_) | Err(KeyFileError::Exists(..)) => Self::open(path),
            Err(error) => Err(error),
        }
    }

    /// Makes the file with a new key.
    ///
    /// # Errors
    /// If it exists, or cannot be written.
    pub fn create(path: &Path, now: UnixMillis) -> Result<K, KeyFileError> {
        if path.exists() {
            return Err(KeyFileError::Exists(K::WORDS, path.to_owned()));
        }
        let keys = K::generate(now).map_err(|error| KeyFileError::Make(K::WORDS, error))?;
        let failed = |error| KeyFileError::Write(K::WORDS, path.to_owned(), error);
        let _lock = write::lock_folder(path).map_err(failed)?;
        write::create(path, &keys.write(), K::WORDS)?;
        Ok(keys)
    }

    /// Adds a key to the file and lets the earlier ones end ([`KeySet::rotate`]). Two rotations at
    /// the same time happen one after the other.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the key cannot be replaced.
    pub fn rotate(path: &Path, rotation: Rotation, now: UnixMillis) -> Result<K, KeyFileError> {
        Self::change(path, |keys| keys.rotate(rotation, now))
    }

    /// Changes the keys of the file. Two changes at the same time happen one after the other.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the change fails.
    pub fn change(
        path: &Path,
        change: impl FnOnce(&mut K) -> Result<(), RotationError>,
    ) -> Result<K, KeyFileError> {
        // The file itself, so that a link to it stays one.
        let path = &fs::canonicalize(path).map_err(|error| unreadable(K::WORDS, path, error))?;
        let failed = |error| KeyFileError::Write(K::WORDS, path.clone(), error);
        let _lock = write::lock_folder(path).map_err(failed)?;
        let (mut keys, _) = read::<K>(path)?;
        change(&mut keys).map_err(|error| KeyFileError::Rotate(K::WORDS, error))?;
        write::replace(path, &keys.write(), K::WORDS)?;
        Ok(keys)
    }

    /// Its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys. Every five seconds the first caller looks whether the file changed, and reads it
    /// if so; this takes a few microseconds of file access, and the other callers do not wait.
    pub fn current(&self) -> Arc<K> {
        let now = Instant::now();
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) < CHECK_INTERVAL {
            return state.keys.clone();
        }
        drop(state);
        self.check(now)
    }

    /// Returns the keys of the file as it is now, for a caller who looks for one that is not among them: another
    /// program may use it already. The file is looked at once a second at most.
    pub(crate) fn newest(&self) -> Option<Arc<K>> {
        self.may_look_again(Instant::now()).then(|| self.check(Instant::now()))
    }

    fn may_look_again(&self, now: Instant) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(state.checked) >= UNKNOWN_KEY_INTERVAL
    }

    /// Reads the file again if it changed since it was read.
    fn check(&self, now: Instant) -> Arc<K> {
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
    fn reload(&self, found: Option<Version>) -> Option<Arc<K>> {
        match read::<K>(&self.path) {
            Ok((keys, read)) => {
                let keys = Arc::new(keys);
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                state.keys = keys.clone();
                state.read = read;
                state.unusable = None;
                let (path, number) = (self.path.display(), keys.count());
                info!(%path, keys = number, "the {} file was read again", K::WORDS.name);
                Some(keys)
            }
            Err(error) => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                if state.unusable.replace(found.clone()) != Some(found) {
                    warn!(
                        runbook = "keys-or-certificates-cannot-be-read",
                        error = &error as &dyn std::error::Error,
                        "the keys of the {} file stay as they were read before",
                        K::WORDS.name
                    );
                }
                None
            }
        }
    }
}

impl KeyFile {
    /// The device that this login at an MQTT broker proves ([`KeySet::authenticate`]). An unknown key may be
    /// one that another program signs with already, so the file is read again, at most once a second.
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
        self.with_newest(|keys| keys.authenticate(client_id, username, password, now))
    }

    /// Returns the device that a token for its own record was issued to ([`KeySet::verify`]), as
    /// [`KeyFile::authenticate`].
    ///
    /// # Errors
    /// As [`KeySet::verify`].
    pub fn verify_for_record(
        &self,
        token: &[u8],
        now: UnixMillis,
    ) -> Result<DeviceIdentity, TokenError> {
        self.with_newest(|keys| keys.verify(token, Purpose::DeviceRecord, now))
    }

    fn with_newest(
        &self,
        verify: impl Fn(&KeySet) -> Result<DeviceIdentity, TokenError>,
    ) -> Result<DeviceIdentity, TokenError> {
        let found = verify(&self.current());
        match (&found, self.newest()) {
            (Err(TokenError::UnknownKey), Some(keys)) => verify(&keys),
            _ => found,
        }
    }
}

fn unreadable(words: KeyWords, path: &Path, error: io::Error) -> KeyFileError {
    match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing(words, path.to_owned()),
        _ => KeyFileError::Read(words, path.to_owned(), error),
    }
}

fn read<K: StoredKeys>(path: &Path) -> Result<(K, Version), KeyFileError> {
    let failed = |error| unreadable(K::WORDS, path, error);
    let file = File::open(path).map_err(failed)?;
    let version = Version::of(&file.metadata().map_err(failed)?);
    let mut text = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut text).map_err(failed)?;
    let fits = u64::try_from(text.len()).is_ok_and(|len| len <= MAX_SIZE);
    let keys = fits.then(|| K::read(without_mark(&text))).flatten();
    let keys = keys.ok_or_else(|| KeyFileError::Format(K::WORDS, path.to_owned()))?;
    Ok((keys, version))
}

#[cfg(test)]
mod tests;
