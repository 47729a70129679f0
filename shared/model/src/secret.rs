//! App secrets: made here, shown once, stored as salted hashes, compared in constant time.
//!
//! A generated secret has 256 random bits and cannot be guessed, so a fast hash is enough; a slow
//! one would only cost time with every push. For the same reason a secret that an operator chooses
//! must have at least [`Secret::MIN_LEN`] characters.

use std::fmt;

use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A secret in the clear. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Secret(Box<str>);

/// The text is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret must be {} to {} visible ASCII characters", Secret::MIN_LEN, Secret::MAX_LEN)]
pub struct BadSecret;

impl Secret {
    /// The fewest characters.
    pub const MIN_LEN: usize = 32;
    /// The most characters.
    pub const MAX_LEN: usize = 256;

    /// A new secret of 256 random bits, as 64 hexadecimal digits.
    pub fn generate() -> Self {
        Self(hex::encode(random::<32>()).into())
    }

    /// Checks a secret that the operator chose.
    ///
    /// # Errors
    /// If it is too short to be unguessable, too long, or cannot stand in an HTTP header.
    pub fn new(text: &str) -> Result<Self, BadSecret> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if visible && (Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(BadSecret)
        }
    }

    /// The secret in the clear, to be shown once or sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

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
        let salt = hex::encode(random::<16>());
        let sha256 = digest(&salt, secret.expose().as_bytes());
        Self { salt, sha256 }
    }

    /// Whether these bytes are the secret. The comparison takes the same time wherever they differ.
    pub fn verify(&self, presented: &[u8]) -> bool {
        digest(&self.salt, presented).ct_eq(&self.sha256).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

fn digest(salt: &str, secret: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(secret);
    hash.finalize().into()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
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

    #[test]
    fn a_secret_that_could_be_guessed_is_refused() {
        assert!(Secret::new("hunter2").is_err());
        assert!(Secret::new(&"é".repeat(40)).is_err());
        assert!(Secret::new(&"x".repeat(32)).is_ok());
    }
}
