//! A secret as it is stored, and how what a caller presents is compared with it.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Secret, random};

/// A secret as it is stored: SHA-256 over a random salt and the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretHash {
    salt: String,
    #[serde(with = "hex")]
    sha256: [u8; 32],
}

impl SecretHash {
    /// Hashes a secret with a new salt.
    pub fn of(secret: &Secret) -> Self {
        Self::with_salt(hex::encode(random::<16>()), secret)
    }

    /// Hashes a secret with the salt of another, so that one hash of what a caller presents can be
    /// compared with both.
    pub fn with_salt_of(other: &Self, secret: &Secret) -> Self {
        Self::with_salt(other.salt.clone(), secret)
    }

    fn with_salt(salt: String, secret: &Secret) -> Self {
        let sha256 = digest(&salt, secret.expose().as_bytes());
        Self { salt, sha256 }
    }

    /// Returns true if these bytes are the secret. The comparison takes the same time wherever they
    /// differ.
    pub fn verify(&self, presented: &[u8]) -> bool {
        Presented::new(presented).is(self)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

/// The bytes that a caller presents as a secret. They are hashed again only where the salt changes.
pub(crate) struct Presented<'a> {
    bytes: &'a [u8],
    /// The last salt, and the digest with it.
    hashed: Option<(&'a str, [u8; 32])>,
    #[cfg(test)]
    hashes: usize,
}

impl<'a> Presented<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            hashed: None,
            #[cfg(test)]
            hashes: 0,
        }
    }

    /// Returns true if it is this secret. The comparison takes the same time wherever they differ.
    pub(crate) fn is(&mut self, secret: &'a SecretHash) -> bool {
        let digest = match self.hashed {
            Some((salt, digest)) if salt == secret.salt => digest,
            _ => {
                #[cfg(test)]
                {
                    self.hashes += 1;
                }
                digest(&secret.salt, self.bytes)
            }
        };
        self.hashed = Some((&secret.salt, digest));
        digest.ct_eq(&secret.sha256).into()
    }

    /// Returns how many hashes it took so far.
    #[cfg(test)]
    pub(crate) fn hashes(&self) -> usize {
        self.hashes
    }
}

fn digest(salt: &str, secret: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(secret);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_accepts_its_secret_and_nothing_else() {
        let secret = Secret::generate();
        let hash = SecretHash::of(&secret);
        assert!(hash.verify(secret.expose().as_bytes()));
        assert!(!hash.verify(&secret.expose().as_bytes()[1..]));
        assert!(!hash.verify(b""));
        assert_ne!(hash, SecretHash::of(&secret), "each hash has a salt of its own");
    }

    #[test]
    fn neither_a_secret_nor_its_hash_prints() {
        let secret = Secret::generate();
        let shown = format!("{secret:?} {:?}", SecretHash::of(&secret));
        assert_eq!(shown, "Secret(…) SecretHash(…)");
    }

    #[test]
    fn a_hash_that_was_stored_is_read_again_and_a_damaged_one_is_an_error() {
        let stored = r#"{"salt":"ab","sha256":"f6fcc9b22b0b6bd9f6a0d1e3f4f1e1d1f6fcc9b22b0b6bd9f6a0d1e3f4f1e1d1"}"#;
        let hash: SecretHash = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&hash).unwrap(), stored);
        for damaged in [stored.replace("f6fc", "f6f"), stored.replace("f6fc", "f6f?")] {
            assert!(serde_json::from_str::<SecretHash>(&damaged).is_err());
        }
    }
}
