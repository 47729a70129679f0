//! The address of a device: a registration token, or a Firebase installation ID.

use push_model::device::MAX_TOKEN_LEN;

use crate::BadToken;

/// The length of an installation ID, the shortest address.
const INSTALLATION_LEN: usize = 22;

/// An address whose characters need no escape in JSON.
///
/// Google moves from registration tokens to installation IDs. The form of a text tells which of the two it
/// is: an installation ID has 22 characters of `A-Z a-z 0-9 _ -` and begins with `c`, `d`, `e` or `f`,
/// because its first four bits are 0111. Every other text is a registration token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    text: Box<str>,
}

impl Token {
    pub(super) fn read(text: &str) -> Result<Self, BadToken> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:".contains(&byte);
        if (INSTALLATION_LEN..=MAX_TOKEN_LEN).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self { text: text.into() })
        } else {
            Err(BadToken {
                expected: "must be an FCM registration token or a Firebase installation ID: 22 to 4096 \
                           characters of A-Z a-z 0-9 _ - :",
            })
        }
    }

    /// Returns the name of the field of a message that has the address, and the address.
    pub(super) fn field(&self) -> (&'static str, &str) {
        let is_installation = self.text.len() == INSTALLATION_LEN
            && self.text.starts_with(['c', 'd', 'e', 'f'])
            && !self.text.contains(':');
        (if is_installation { "fid" } else { "token" }, &self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_id_is_told_from_a_registration_token_by_its_form() {
        for (text, field) in [
            ("cFyGJqxnT3mVhZ_8-wZ0aB", "fid"),
            ("fFyGJqxnT3mVhZ_8-wZ0aB", "fid"),
            ("aFyGJqxnT3mVhZ_8-wZ0aB", "token"),
            ("cFyGJqxnT3mVhZ_8-wZ0aBc", "token"),
            ("cFyGJqxnT3mVhZ:8-wZ0aB", "token"),
            ("cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ", "token"),
        ] {
            assert_eq!(Token::read(text).unwrap().field(), (field, text));
        }
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_and_says_what_is_expected() {
        for text in [
            "",
            "short",
            &"a".repeat(4097),
            "with a space in the middle",
            "\"quoted-quoted-quoted\"",
            "ééééééééééééééé",
        ] {
            let error = Token::read(text).unwrap_err();
            assert!(error.to_string().contains("registration token"), "{text}");
        }
    }
}
