//! App secrets: made here, shown once, stored as salted hashes, compared in constant time.
//!
//! A generated secret has 256 random bits and cannot be guessed, so a fast hash is enough; a slow
//! one would only cost time with every push. For the same reason a secret that an operator chooses
//! must not be one that could be guessed (`strength`).

mod hash;
mod strength;

use std::fmt;

use rand::Rng;

pub(crate) use self::hash::Presented;
pub use self::hash::SecretHash;

/// A secret as plain text. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Secret(Box<str>);

/// The text is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// It has not the form of one.
    #[error("a secret must be {} to {} visible ASCII characters", Secret::MIN_LEN, Secret::MAX_LEN)]
    Form,
    /// It could be guessed.
    #[error(
        "it could be guessed, because it repeats itself or uses few different characters: take \
         random ones, for example from `openssl rand -hex 32`, or give no file, and a secret is made"
    )]
    Weak,
}

impl Secret {
    /// The fewest characters.
    pub const MIN_LEN: usize = 32;
    /// The most characters.
    pub const MAX_LEN: usize = 256;

    /// A new secret of 256 random bits, as 64 hexadecimal digits.
    pub fn generate() -> Self {
        Self(hex::encode(random::<32>()).into())
    }

    /// Reads a secret that an app has already.
    ///
    /// # Errors
    /// If it is too short or too long, or cannot stand in an HTTP header.
    pub fn new(text: &str) -> Result<Self, BadSecret> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if visible && (Self::MIN_LEN..=Self::MAX_LEN).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(BadSecret::Form)
        }
    }

    /// Checks a new secret that the operator chose.
    ///
    /// # Errors
    /// As [`Secret::new`], and if it could evidently be guessed.
    pub fn chosen(text: &str) -> Result<Self, BadSecret> {
        let secret = Self::new(text)?;
        if strength::is_weak(text) { Err(BadSecret::Weak) } else { Ok(secret) }
    }

    /// Returns the secret as plain text, to be shown once or sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
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
    fn a_secret_that_could_be_guessed_is_refused_where_it_is_chosen_and_works_where_it_is_used() {
        let repeated = "x".repeat(32);
        assert_eq!(Secret::chosen(&repeated).unwrap_err(), BadSecret::Weak);
        assert!(Secret::new(&repeated).is_ok());
        for bad in ["hunter2", &"é".repeat(40), &"x".repeat(257)] {
            assert_eq!(Secret::chosen(bad).unwrap_err(), BadSecret::Form);
            assert_eq!(Secret::new(bad).unwrap_err(), BadSecret::Form);
        }
    }
}
