//! Strings of a JSON document that are borrowed from it: [`Text`] is its value, [`Literal`] its
//! source text, which is passed on unchanged. And the byte order mark with which editors and spreadsheets on
//! Windows begin a file.

use std::{borrow::Cow, fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

/// The byte order mark in UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The bytes of a text without a byte order mark at their beginning.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(bytes)
}

/// The text without a byte order mark at its beginning.
pub fn str_without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// A string, borrowed from the JSON if it has no escapes. Not a bare `Cow`, because serde borrows
/// one only if it is the type of a field itself, not inside an `Option` or a `Vec`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// A string as it is written in a JSON document, with its quotes and escapes. It was checked when
/// it was read and is written out unchanged, so it is not searched for characters to escape again.
#[derive(Clone, Copy, Serialize)]
#[serde(transparent)]
pub struct Literal<'a>(&'a RawValue);

impl<'a> Literal<'a> {
    /// The string's value.
    pub fn text(&self) -> Cow<'a, str> {
        // A literal that is no string was refused when it was read.
        serde_json::from_str(self.0.get()).map(|Text(text)| text).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Literal<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &'a RawValue = Deserialize::deserialize(deserializer)?;
        let json = raw.get();
        // A raw value may be no string, and its check accepts an escape that is half of a surrogate
        // pair.
        if !json.starts_with('"') || json.contains('\\') {
            serde_json::from_str::<Text<'_>>(json).map_err(|error| {
                let text = error.to_string();
                D::Error::custom(text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text))
            })?;
        }
        Ok(Self(raw))
    }
}

impl PartialEq for Literal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Literal<'_> {}

impl fmt::Debug for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_order_mark_is_skipped_and_only_at_the_beginning() {
        for (text, rest) in [
            ("\u{feff}{}", "{}"),
            ("{}", "{}"),
            ("\u{feff}", ""),
            ("", ""),
            ("\u{feff}\u{feff}a", "\u{feff}a"),
            (" \u{feff}", " \u{feff}"),
        ] {
            assert_eq!(without_mark(text.as_bytes()), rest.as_bytes());
            assert_eq!(str_without_mark(text), rest);
        }
        assert_eq!(without_mark(b"\xef\xbb"), b"\xef\xbb");
    }

    #[test]
    fn a_text_is_copied_only_if_it_has_escapes() {
        let texts: Vec<Option<Text<'_>>> =
            serde_json::from_str(r#"["ab", null, "a\u0062"]"#).unwrap();
        assert_eq!(texts, [Some("ab".into()), None, Some("ab".into())]);
        let borrowed = |text: &Option<Text<'_>>| matches!(text, Some(Text(Cow::Borrowed(_))));
        assert_eq!([borrowed(&texts[0]), borrowed(&texts[2])], [true, false]);
    }

    #[test]
    fn a_literal_is_written_as_it_was_read() {
        let json = r#"["","aé","a\u00e9\/\"\ud83d\ude00\u0000"]"#;
        let literals: Vec<Literal<'_>> = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&literals).unwrap(), json);
        let texts: Vec<_> = literals.iter().map(Literal::text).collect();
        assert_eq!(texts, ["", "aé", "aé/\"😀\0"]);
    }

    #[test]
    fn a_literal_is_a_string_that_means_something() {
        for (json, problem) in [
            ("5", "invalid type: integer `5`, expected a string"),
            ("[\"a\"]", "invalid type: sequence, expected a string"),
            ("null", "invalid type: null, expected a string"),
            (r#""\ud83d""#, "unexpected end of hex escape"),
            (r#""\ude00""#, "lone leading surrogate in hex escape"),
        ] {
            let error = serde_json::from_str::<Literal<'_>>(json).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{json}: {error}");
        }
        for json in [r#""\x""#, "\"\n\"", "\"a", "a"] {
            assert!(serde_json::from_str::<Literal<'_>>(json).is_err(), "{json}");
        }
    }
}
