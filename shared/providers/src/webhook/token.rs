//! The address of a device, which only the app's receiver understands: a phone number, a token of another
//! push service, an e-mail address.

use std::fmt;

use push_model::device::MAX_TOKEN_LEN;

use crate::BadToken;

/// An address. Its `Debug` form shows its length alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub(super) Box<str>);

impl Token {
    /// Checks the length.
    ///
    /// # Errors
    /// If it is empty or too long.
    pub(super) fn read(text: &str) -> Result<Self, BadToken> {
        if text.is_empty() || text.len() > MAX_TOKEN_LEN {
            return Err(BadToken { expected: "must be a text of 1 to 4096 bytes" });
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_of_1_to_4096_bytes_is_an_address() {
        for good in ["a", "+353 1 234", "名前@example.com", &"x".repeat(4096)] {
            assert!(Token::read(good).is_ok());
        }
        for bad in ["", &"x".repeat(4097)] {
            assert!(Token::read(bad).is_err());
        }
        assert!(!format!("{:?}", Token::read("secret").unwrap()).contains("secret"));
    }
}
