//! Private keys in the form in which Google and Apple hand them out: PKCS #8 in PEM (RFC 7468).

use base64::{Engine as _, engine::general_purpose::STANDARD};

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// Describes what a key must look like, to follow the name of its field.
pub(crate) const EXPECTED: &str =
    "must be a private key as PKCS #8 in PEM, which begins with -----BEGIN PRIVATE KEY-----";

/// Returns the bytes of the first private key of a text; `None` if it has none.
pub(crate) fn private_key(text: &str) -> Option<Vec<u8>> {
    let (_, after) = text.split_once(BEGIN)?;
    let (body, _) = after.split_once(END)?;
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_with_any_line_ends_and_with_text_around_it() {
        for text in [
            format!("{BEGIN}\nAQID\nBAU=\n{END}\n"),
            format!("{BEGIN}\r\nAQID\r\nBAU=\r\n{END}"),
            format!("# my key\n{BEGIN}AQIDBAU={END}"),
        ] {
            assert_eq!(private_key(&text), Some(vec![1, 2, 3, 4, 5]), "{text}");
        }
    }

    #[test]
    fn other_kinds_of_keys_are_not_taken_for_one() {
        for text in [
            "",
            "AQID",
            "-----BEGIN EC PRIVATE KEY-----\nAQID\n-----END EC PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nAQID",
            "-----BEGIN PRIVATE KEY-----\n?\n-----END PRIVATE KEY-----",
        ] {
            assert_eq!(private_key(text), None, "{text}");
        }
    }
}
