//! The key with which an app's message ids are derived from idempotency keys.
//!
//! Idempotency keys are often guessed: order numbers, dates. An id that followed from app and key
//! alone could be computed by any app, and the checksum of an id has only 32 bits: an app that searches
//! for long enough finds a key whose id passes for one of its own, and could recall that message before it
//! is pushed. So the ids follow from a secret of the app, too, which all `ingest` read in its record.

use std::fmt;

use rand::Rng;
use serde::{Deserialize, Serialize};

/// A key of 128 random bits. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdKey(#[serde(with = "hex")] [u8; 16]);

impl IdKey {
    /// A new key.
    pub fn generate() -> Self {
        let mut bytes = [0; 16];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The unencrypted key, to derive an id with.
    pub(crate) const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl From<[u8; 16]> for IdKey {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_as_text_and_does_not_print() {
        let key = IdKey::generate();
        assert_ne!(key, IdKey::generate());
        let stored = serde_json::to_string(&key).unwrap();
        assert_eq!(stored.len(), 32 + 2);
        assert_eq!(serde_json::from_str::<IdKey>(&stored).unwrap(), key);
        assert_eq!(format!("{key:?}"), "IdKey(…)");
        assert!(serde_json::from_str::<IdKey>("\"00\"").is_err());
    }
}
