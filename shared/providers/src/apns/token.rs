//! The address of a device: its device token in hexadecimal digits.

use std::borrow::Cow;

use crate::BadToken;

/// The fewest digits: 32 bytes, as all tokens have today.
const MIN_LEN: usize = 64;
/// The most digits. Apple says that tokens may become longer, up to 100 bytes.
const MAX_LEN: usize = 200;

/// A device token in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    text: Box<str>,
}

impl Token {
    /// Returns a device token as it is stored.
    pub(super) fn stored(text: &str) -> Result<Cow<'_, str>, BadToken> {
        let has_length = (MIN_LEN..=MAX_LEN).contains(&text.len()) && text.len().is_multiple_of(2);
        if !has_length || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadToken {
                expected: "must be an APNs device token as 64 to 200 hexadecimal digits",
            });
        }
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        Ok(if is_lower { text.into() } else { text.to_ascii_lowercase().into() })
    }

    pub(super) fn read(stored: &str) -> Result<Self, BadToken> {
        Ok(Self { text: Self::stored(stored)?.into() })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_a_device_token_are_stored_as_one() {
        let lower = "0a".repeat(32);
        assert_eq!(Token::stored(&lower).unwrap(), lower);
        assert_eq!(Token::stored(&lower.to_uppercase()).unwrap(), lower);
        assert_eq!(Token::read(&"F".repeat(200)).unwrap().as_str(), "f".repeat(200));
    }

    #[test]
    fn a_text_that_is_no_device_token_is_refused_and_says_what_is_expected() {
        let spaced = format!("<{}>", ["0a0a0a0a"; 8].join(" "));
        let long = "a".repeat(202);
        for text in ["", "0a", &"0a".repeat(31), &"a".repeat(65), &long, &"0g".repeat(32), &spaced]
        {
            let error = Token::stored(text).unwrap_err();
            assert!(error.to_string().contains("hexadecimal"), "{text}");
        }
    }
}
