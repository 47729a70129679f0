//! The texts of a notification in several languages.
//!
//! They travel beside the payload, which has the fallback. A worker makes the payload of each language that the
//! devices of a batch need ([`Localized::payload`]), once for a message.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use crate::{message::Payload, text::Literal};

/// The most languages of a notification.
pub const MAX_LANGUAGES: usize = 32;

/// What a notification says in one language. A text that is absent is that of the fallback.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LocalText {
    /// The first line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub desc: Option<String>,
}

/// Texts by language: normalised tags ([`Attribute::Language`](crate::attributes::Attribute::Language)).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Localized(pub BTreeMap<Box<str>, LocalText>);

impl Localized {
    /// The tag of the texts for a device of this language, by the lookup of RFC 4647 section 3.4; none if the fallback
    /// is for it.
    pub fn lookup(&self, language: Option<&str>) -> Option<&str> {
        let mut range = language?;
        loop {
            if let Some((tag, _)) = self.0.get_key_value(range) {
                return Some(tag);
            }
            (range, _) = range.rsplit_once('-')?;
            // A single letter or digit only introduces what followed it.
            while let Some((before, last)) = range.rsplit_once('-')
                && last.len() == 1
            {
                range = before;
            }
        }
    }

    /// Returns the payload that a device gets whose language is looked up as `tag`: that of the message with the texts
    /// of the language in place of the fallback's. A message without a notification stays as it is.
    ///
    /// # Errors
    /// If the payload is not the JSON of a [`Payload`].
    pub fn payload(&self, payload: &Bytes, tag: Option<&str>) -> Result<Bytes, serde_json::Error> {
        let Some(LocalText { title, desc }) = tag.and_then(|tag| self.0.get(tag)) else {
            return Ok(payload.clone());
        };
        let mut read: Payload<'_> = serde_json::from_slice(payload)?;
        let Some(notification) = &mut read.notification else { return Ok(payload.clone()) };
        let raw = |text: &Option<String>| text.as_ref().map(to_raw_value).transpose();
        let (title, desc) = (raw(title)?, raw(desc)?);
        if let Some(title) = &title {
            notification.title = Some(serde_json::from_str::<Literal<'_>>(title.get())?);
        }
        if let Some(desc) = &desc {
            notification.desc = Some(serde_json::from_str::<Literal<'_>>(desc.get())?);
        }
        Ok(serde_json::to_vec(&read)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn localized(tags: &[&str]) -> Localized {
        let text = |tag: &str| LocalText { title: Some(format!("\"{tag}\"")), desc: None };
        Localized(tags.iter().map(|tag| ((*tag).into(), text(tag))).collect())
    }

    #[test]
    fn a_language_is_looked_up_from_its_most_specific_tag_to_its_least_specific_one() {
        let texts = localized(&["zh", "zh-hant", "de-at"]);
        for (language, found) in [
            ("zh-hans-cn", Some("zh")),
            ("zh-hant-tw", Some("zh-hant")),
            ("zh-hant-x-wadegile-private1", Some("zh-hant")),
            ("zh", Some("zh")),
            ("de", None),
            ("de-at-1996", Some("de-at")),
            ("fr", None),
        ] {
            assert_eq!(texts.lookup(Some(language)), found, "{language}");
        }
        assert_eq!(texts.lookup(None), None);
    }

    #[test]
    fn a_payload_has_the_texts_of_its_language_and_else_those_of_the_fallback() {
        let payload = br#"{"message_id":"018f0000-0000-7000-8000-000000000000","app_id":"a","type":1,"notification":{"notification_type":1,"title":"Hi","desc":"\u0041","open_type":1},"badge":3,"accepted_at":1,"sequence":2,"expires_at":3}"#;
        let payload = Bytes::from_static(payload);
        let texts = localized(&["de"]);
        assert_eq!(texts.payload(&payload, None).unwrap(), payload);
        let german = texts.payload(&payload, Some("de")).unwrap();
        let expected =
            String::from_utf8(payload.to_vec()).unwrap().replace(r#""Hi""#, r#""\"de\"""#);
        assert_eq!(String::from_utf8(german.to_vec()).unwrap(), expected);
    }
}
