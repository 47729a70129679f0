//! The content of the file.
//!
//! ```json
//! {"version": 1, "keys": [{
//!   "kid": "…", "created_at": "2026-01-01T00:00:00.000Z", "signs_from": "2026-01-01T00:01:00.000Z",
//!   "verifies_until": null, "private_key": "PKCS #8, DER, in base64url"
//! }]}
//! ```

use push_model::time::UnixMillis;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    encoding::{base64url, from_base64url},
    key::Key,
    key_set::KeySet,
};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct StoredSet {
    version: u32,
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    /// For people who read the file; it follows from the key.
    kid: String,
    created_at: Time,
    signs_from: Time,
    verifies_until: Option<Time>,
    private_key: String,
}

/// A time in RFC 3339, so that the file can be read.
#[derive(Clone, Copy)]
struct Time(UnixMillis);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The keys in this text; none if it is something else. The wrong part is not named, because the
/// parts are secret.
pub(super) fn read(text: &[u8]) -> Option<KeySet> {
    let stored: StoredSet = serde_json::from_slice(text).ok()?;
    if stored.version != VERSION {
        return None;
    }
    let keys = stored.keys.into_iter().map(|stored| {
        let until = stored.verifies_until.map(|until| until.0);
        let pkcs8 = from_base64url(stored.private_key.as_bytes())?;
        let key = Key::from_pkcs8(pkcs8, stored.created_at.0, stored.signs_from.0, until)?;
        (key.kid() == stored.kid).then_some(key)
    });
    KeySet::new(keys.collect::<Option<_>>()?)
}

/// The text that keeps these keys.
pub(super) fn write(keys: &KeySet) -> Vec<u8> {
    let keys = keys.keys().iter().map(|key| StoredKey {
        kid: key.kid().to_owned(),
        created_at: Time(key.created_at),
        signs_from: Time(key.signs_from),
        verifies_until: key.verifies_until.map(Time),
        private_key: base64url(key.pkcs8()),
    });
    let stored = StoredSet { version: VERSION, keys: keys.collect() };
    let mut text = serde_json::to_vec_pretty(&stored).unwrap_or_default();
    text.push(b'\n');
    text
}
