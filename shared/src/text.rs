//! A text in JSON that is read without being copied.

use std::{borrow::Cow, ops::Deref};

use serde::Deserialize;

/// A text that is borrowed from the JSON where it has no escapes. A bare `Cow` would not do: serde
/// borrows one only where it is the type of a field itself, not inside an `Option` or a `Vec`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_copied_only_if_it_has_escapes() {
        let texts: Vec<Option<Text<'_>>> =
            serde_json::from_str(r#"["ab", null, "a\u0062"]"#).unwrap();
        assert_eq!(texts, [Some("ab".into()), None, Some("ab".into())]);
        let borrowed = |text: &Option<Text<'_>>| matches!(text, Some(Text(Cow::Borrowed(_))));
        assert_eq!([borrowed(&texts[0]), borrowed(&texts[2])], [true, false]);
    }
}
