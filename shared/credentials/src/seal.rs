//! Sealing the credentials of apps at providers, so that who reads the stores or a backup cannot use them.
//!
//! AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits: by its section 8.3 a key serves for 2^32
//! seals, and an account is sealed when it is set. The context (app and transport) is authenticated with it,
//! so a sealed credential that is copied to another app does not open.
//!
//! A sealed credential names its key. A rotation adds a key, which seals from then on; earlier ones go on
//! opening until everything was sealed again and they are dropped.

use push_model::time::UnixMillis;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};

use crate::{
    encoding::{base64url, from_base64url},
    issue_error::IssueError,
    key_file::{KeyWords, StoredKeyFile, StoredKeys},
    key_set::{MAX_KEYS, Rotation, RotationError},
};

const KEY_LEN: usize = 32;
/// The length of a key's id, in bytes before encoding.
const ID_LEN: usize = 6;
const VERSION: u32 = 1;

/// The keys that seal, the newest last.
#[derive(Clone)]
pub struct SealKeys(Vec<SealKey>);

#[derive(Clone)]
struct SealKey {
    id: String,
    created_at: UnixMillis,
    /// The time from which it seals: by then every program has read it.
    seals_from: UnixMillis,
    key: [u8; KEY_LEN],
}

/// The file of the keys that seal.
pub type SealFile = StoredKeyFile<SealKeys>;

/// The reasons why a sealed credential does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was sealed with another key.
    #[error("it is sealed with the key {0}, which is not in the seal key file")]
    UnknownKey(String),
    /// It was changed, or belongs to another app or transport.
    #[error("it was changed after it was sealed, or belongs to another app or transport")]
    Changed,
    /// Nothing can be sealed.
    #[error("the operating system gives no random numbers")]
    NoRandom,
}

impl SealKeys {
    /// Seals a credential for this context.
    ///
    /// # Errors
    /// If the operating system gives no random numbers.
    pub fn seal(&self, plain: &[u8], context: &str, now: UnixMillis) -> Result<String, SealError> {
        let key = self.sealing(now).ok_or(SealError::NoRandom)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| SealError::NoRandom)?;
        let mut sealed = plain.to_vec();
        key.cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(context.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| SealError::Changed)?;
        let bytes = [&nonce[..], &sealed].concat();
        Ok(format!("{}.{}", key.id, base64url(&bytes)))
    }

    /// Opens what [`SealKeys::seal`] sealed for the same context.
    ///
    /// # Errors
    /// If its key is missing, or it was changed.
    pub fn open(&self, sealed: &str, context: &str) -> Result<Vec<u8>, SealError> {
        let (id, text) = sealed.split_once('.').ok_or(SealError::Changed)?;
        let key = self.0.iter().find(|key| key.id == id);
        let key = key.ok_or_else(|| SealError::UnknownKey(shown(id)))?;
        let bytes = from_base64url(text.as_bytes()).ok_or(SealError::Changed)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(SealError::Changed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Changed)?;
        let mut text = text.to_vec();
        let plain = key
            .cipher()?
            .open_in_place(nonce, Aad::from(context.as_bytes()), &mut text)
            .map_err(|_| SealError::Changed)?;
        Ok(plain.to_vec())
    }

    /// Returns true if the credential is sealed with the key that seals now.
    pub fn is_newest(&self, sealed: &str, now: UnixMillis) -> bool {
        self.sealing(now)
            .is_some_and(|key| sealed.split_once('.').is_some_and(|(id, _)| id == key.id))
    }

    /// Returns the ids of the keys, the times from which they seal, and when they were made.
    pub fn list(&self) -> impl Iterator<Item = (&str, UnixMillis, UnixMillis)> {
        self.0.iter().map(|key| (&*key.id, key.seals_from, key.created_at))
    }

    /// Returns the newest key and the time from which it seals, if it does not seal yet.
    pub fn next(&self, now: UnixMillis) -> Option<(&str, UnixMillis)> {
        let newest = self.0.last().filter(|key| key.seals_from > now)?;
        Some((&newest.id, newest.seals_from))
    }

    /// Drops the keys that were made before the newest of these.
    pub fn drop_before_newest(&mut self, of: &Self) {
        let newest = of.0.last().map(|key| &key.id);
        if let Some(at) = self.0.iter().position(|key| Some(&key.id) == newest) {
            self.0.drain(..at);
        }
    }

    /// The key that seals at this time.
    fn sealing(&self, now: UnixMillis) -> Option<&SealKey> {
        self.0.iter().rfind(|key| key.seals_from <= now).or(self.0.first())
    }
}

/// An id as far as it may be shown: the text is whatever a store holds.
fn shown(id: &str) -> String {
    id.chars().filter(char::is_ascii_graphic).take(2 * ID_LEN).collect()
}

impl SealKey {
    fn generate(now: UnixMillis, seals_from: UnixMillis) -> Result<Self, IssueError> {
        let (mut id, mut key) = ([0; ID_LEN], [0; KEY_LEN]);
        let random = SystemRandom::new();
        random
            .fill(&mut id)
            .and_then(|()| random.fill(&mut key))
            .map_err(|_| IssueError::Random)?;
        Ok(Self { id: base64url(&id), created_at: now, seals_from, key })
    }

    fn cipher(&self) -> Result<LessSafeKey, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, &self.key).map_err(|_| SealError::Changed)?;
        Ok(LessSafeKey::new(key))
    }
}

impl SealFile {
    /// Opens what was sealed, with the file as it is now if its key is not known yet.
    ///
    /// # Errors
    /// As [`SealKeys::open`].
    pub fn open_sealed(&self, sealed: &str, context: &str) -> Result<Vec<u8>, SealError> {
        let opened = self.current().open(sealed, context);
        match (&opened, self.newest()) {
            (Err(SealError::UnknownKey(_)), Some(keys)) => keys.open(sealed, context),
            _ => opened,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredSet {
    version: u32,
    seal_keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    id: String,
    /// Unix milliseconds.
    created_at: UnixMillis,
    seals_from: UnixMillis,
    /// AES-256, in base64url.
    key: String,
}

impl StoredKeys for SealKeys {
    const WORDS: KeyWords = KeyWords {
        name: "seal key",
        create: "pushctl key seal FILE",
        rotate: "pushctl key seal FILE --rotate",
        lost: "every account at a provider must be set again",
    };

    fn read(text: &[u8]) -> Option<Self> {
        let stored: StoredSet = serde_json::from_slice(text).ok()?;
        let keys = stored.seal_keys.into_iter().map(|stored| {
            let key = from_base64url(stored.key.as_bytes())?.try_into().ok()?;
            let StoredKey { id, created_at, seals_from, .. } = stored;
            Some(SealKey { id, created_at, seals_from, key })
        });
        let keys: Vec<_> = keys.collect::<Option<_>>()?;
        let valid = stored.version == VERSION && (1..=MAX_KEYS).contains(&keys.len());
        valid.then_some(Self(keys))
    }

    fn write(&self) -> Vec<u8> {
        let seal_keys = self.0.iter().map(|key| StoredKey {
            id: key.id.clone(),
            created_at: key.created_at,
            seals_from: key.seals_from,
            key: base64url(&key.key),
        });
        let stored = StoredSet { version: VERSION, seal_keys: seal_keys.collect() };
        let mut text = serde_json::to_vec_pretty(&stored).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn generate(now: UnixMillis) -> Result<Self, IssueError> {
        Ok(Self(vec![SealKey::generate(now, now)?]))
    }

    fn rotate(&mut self, rotation: Rotation, now: UnixMillis) -> Result<(), RotationError> {
        if self.0.len() >= MAX_KEYS {
            return Err(RotationError::Full);
        }
        let key = SealKey::generate(now, now.plus(rotation.lead)).map_err(RotationError::Make)?;
        self.0.push(key);
        Ok(())
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// The keys are secret.
impl std::fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn rotated(keys: &SealKeys) -> SealKeys {
        let mut rotated = keys.clone();
        let rotation = Rotation { lead: Duration::from_secs(60), overlap: Duration::ZERO };
        rotated.rotate(rotation, NOW).unwrap();
        rotated
    }

    #[test]
    fn a_credential_opens_with_its_key_in_its_context_and_in_no_other_way() {
        let (keys, others) = (SealKeys::generate(NOW).unwrap(), SealKeys::generate(NOW).unwrap());
        let sealed = keys.seal(b"secret", "app/fcm", NOW).unwrap();
        assert_eq!(keys.open(&sealed, "app/fcm").unwrap(), b"secret");
        assert_eq!(keys.open(&sealed, "app/apns"), Err(SealError::Changed));
        assert!(matches!(others.open(&sealed, "app/fcm"), Err(SealError::UnknownKey(_))));
        assert!(!sealed.contains("secret"));
        let (id, text) = sealed.split_once('.').unwrap();
        for at in 0..text.len() {
            let mut text = text.as_bytes().to_vec();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            let changed = format!("{id}.{}", String::from_utf8(text).unwrap());
            assert_eq!(keys.open(&changed, "app/fcm"), Err(SealError::Changed), "{at}");
        }
        for changed in ["", ".", id, &format!("{id}."), &format!("{id}.AAAA")] {
            assert!(keys.open(changed, "app/fcm").is_err(), "{changed}");
        }
    }

    #[test]
    fn a_new_key_seals_after_the_lead_and_the_earlier_one_goes_on_opening() {
        let keys = SealKeys::generate(NOW).unwrap();
        let old = keys.seal(b"a", "c", NOW).unwrap();
        let mut both = rotated(&keys);
        let during = both.seal(b"b", "c", NOW.plus_seconds(59)).unwrap();
        assert_eq!(keys.open(&during, "c").unwrap(), b"b", "other programs have only the old key");
        let later = NOW.plus_seconds(60);
        let new = both.seal(b"b", "c", later).unwrap();
        assert_eq!(both.open(&old, "c").unwrap(), b"a");
        assert!(keys.open(&new, "c").is_err());
        assert!(both.is_newest(&new, later) && !both.is_newest(&old, later));
        assert_eq!(both.next(later), None);
        assert!(both.next(NOW.plus_seconds(59)).is_some_and(|(_, from)| from == later));
        both.drop_before_newest(&both.clone());
        assert_eq!(both.open(&new, "c").unwrap(), b"b");
        assert!(both.open(&old, "c").is_err());
    }

    #[test]
    fn the_keys_are_read_from_their_file_and_nothing_else_is() {
        let keys = rotated(&SealKeys::generate(NOW).unwrap());
        let sealed = keys.seal(b"a", "c", NOW).unwrap();
        let read = SealKeys::read(&keys.write()).unwrap();
        assert_eq!(read.open(&sealed, "c").unwrap(), b"a");
        for text in ["", "{}", r#"{"version":1,"seal_keys":[]}"#, r#"{"version":1,"keys":[]}"#] {
            assert!(SealKeys::read(text.as_bytes()).is_none(), "{text}");
        }
        assert!(!format!("{keys:?}").contains(&base64url(&keys.0[0].key)));
    }
}
