//! What the ledger keeps of a broadcast beside its progress: its content, and who sent it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::text::Text;

/// The longest content that is kept, in bytes of its JSON.
pub const MOST_CONTENT: usize = 4096;

/// The most characters of a title in a list, and of the title of content that is not kept.
pub const MOST_TITLE: usize = 80;

/// The content and the sender of a broadcast.
///
/// A part of a long content is of no use, so it is kept whole or not at all; its title is kept in any
/// case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastNote {
    /// The name of the secret that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_by: Option<String>,
    /// Its `notification` or its `data`, in an object; none if it is longer than [`MOST_CONTENT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The title of a notification whose content is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

/// The content of a [`Payload`](crate::message::Payload), unread.
#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    notification: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Titled<'a> {
    #[serde(borrow, default)]
    title: Option<Text<'a>>,
}

impl BroadcastNote {
    /// Makes the note of a broadcast with this payload.
    pub fn of(payload: &[u8], sent_by: Option<&str>) -> Self {
        let content = serde_json::from_slice(payload);
        let Content { notification, data } =
            content.unwrap_or(Content { notification: None, data: None });
        let mut kept = Map::new();
        for (name, json) in [("notification", notification), ("data", data)] {
            let short = json.filter(|json| json.get().len() <= MOST_CONTENT);
            let value = short.and_then(|json| serde_json::from_str(json.get()).ok());
            kept.extend(value.map(|value: Value| (name.to_owned(), value)));
        }
        let content = Some(Value::Object(kept)).filter(|kept| kept != &Value::Object(Map::new()));
        let title = match (&content, notification) {
            (None, Some(notification)) => {
                let titled = serde_json::from_str::<Titled<'_>>(notification.get()).ok();
                titled.and_then(|titled| titled.title).map(|title| shortened(&title))
            }
            _ => None,
        };
        Self { sent_by: sent_by.map(str::to_owned), content, title }
    }

    /// The title of a notification, cut to [`MOST_TITLE`] characters.
    pub fn title(&self) -> Option<String> {
        let of_content =
            self.content.as_ref().and_then(|content| content.pointer("/notification/title"));
        of_content.and_then(Value::as_str).map(shortened).or_else(|| self.title.clone())
    }
}

fn shortened(title: &str) -> String {
    match title.char_indices().nth(MOST_TITLE) {
        None => title.to_owned(),
        Some(_) => title.chars().take(MOST_TITLE - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn note(payload: &Value) -> BroadcastNote {
        let note = BroadcastNote::of(payload.to_string().as_bytes(), Some("ci"));
        let stored = serde_json::to_vec(&note).unwrap();
        assert_eq!(serde_json::from_slice::<BroadcastNote>(&stored).unwrap(), note);
        assert_eq!(note.sent_by.as_deref(), Some("ci"));
        note
    }

    #[test]
    fn the_content_of_a_notification_and_of_data_is_kept_as_it_is() {
        let notification = json!({ "notification_type": 1, "title": "a\u{e9}", "desc": "b" });
        let of_notification = note(&json!({ "type": 1, "notification": notification, "badge": 2 }));
        assert_eq!(of_notification.content, Some(json!({ "notification": notification })));
        assert_eq!(of_notification.title().as_deref(), Some("a\u{e9}"));
        let of_data = note(&json!({ "type": 2, "data": { "title": "no notification" } }));
        assert_eq!(of_data.content, Some(json!({ "data": { "title": "no notification" } })));
        assert_eq!(of_data.title(), None);
    }

    #[test]
    fn longer_content_is_not_kept_and_its_title_is() {
        let with = |length: usize| {
            let empty = json!({ "title": "t", "desc": "" }).to_string().len();
            note(&json!({ "notification": { "title": "t", "desc": "d".repeat(length - empty) } }))
        };
        assert!(with(MOST_CONTENT).content.is_some());
        let long = with(MOST_CONTENT + 1);
        assert_eq!((long.content.clone(), long.title().as_deref()), (None, Some("t")));
        let long = note(&json!({ "data": { "a": "d".repeat(MOST_CONTENT) } }));
        assert_eq!((long.content.clone(), long.title()), (None, None));
    }

    #[test]
    fn a_long_title_is_cut_between_characters() {
        for (length, whole) in [(MOST_TITLE, true), (MOST_TITLE + 1, false), (MOST_CONTENT, false)]
        {
            let title = "\u{e9}".repeat(length);
            let cut = note(&json!({ "notification": { "title": title } })).title().unwrap();
            assert_eq!(cut.chars().count(), MOST_TITLE, "{length}");
            assert_eq!(cut == title, whole, "{length}");
            assert!(whole || cut.ends_with('…'), "{length}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_note_without_content() {
        for payload in [&b""[..], b"{", b"[]", br#"{"notification":{"title":"\ud800"}}"#] {
            assert_eq!(BroadcastNote::of(payload, None), BroadcastNote::default());
        }
    }
}
