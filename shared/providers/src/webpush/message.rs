//! A payload as a browser receives it: as it is, or in the declarative form, which Safari shows without
//! waking the service worker.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;
use push_model::{
    device::TransportKind,
    hints::Priority,
    ids::MessageId,
    message::{Notification, Payload},
    text::Literal,
};
use ring::digest::{SHA256, digest};
use serde::Serialize;
use url::Url;

use super::{account::Account, encryption};
use crate::{TooLarge, base64url, content::Content};

/// The longest payload: push services take bodies of 4,096 bytes (RFC 8030, section 7.2). Mozilla's takes
/// only 2,744 for Firefox on Android, and answers 413 for more.
pub(super) const MAX_PLAINTEXT_LEN: usize = 4096 - encryption::OVERHEAD;

/// The bytes of a collapse key's hash in a topic: 32 characters, the most that a topic has (RFC 8030, section 5.4).
const TOPIC_HASH_LEN: usize = 24;

/// A message, before it is encrypted for each device.
#[derive(Debug, Clone)]
pub struct Message {
    /// The bytes to encrypt.
    pub(super) plaintext: Bytes,
    /// Messages with the same topic replace each other while the device is away.
    pub(super) topic: HeaderValue,
    /// The value of `Urgency`, if the push has a priority.
    pub(super) urgency: Option<HeaderValue>,
}

impl Message {
    /// Builds the form of a message.
    ///
    /// # Errors
    /// If the payload is too long. The declarative form is not used if it alone is too long.
    pub(super) fn new(content: &Content<'_>, account: Option<&Account>) -> Result<Self, TooLarge> {
        let Content { payload, bytes } = content;
        if bytes.len() > MAX_PLAINTEXT_LEN {
            let (size, limit) = (bytes.len(), MAX_PLAINTEXT_LEN);
            return Err(TooLarge { kind: TransportKind::Webpush, size, limit });
        }
        let declarative = account
            .and_then(Account::declarative)
            .and_then(|open| declarative(payload, open))
            .filter(|json| json.len() <= MAX_PLAINTEXT_LEN);
        let plaintext = declarative.map_or_else(|| Bytes::copy_from_slice(bytes), Bytes::from);
        let urgency = payload.hints.priority.map(|priority| {
            HeaderValue::from_static(match priority {
                Priority::Normal => "normal",
                Priority::High => "high",
            })
        });
        let topic = topic(payload.hints.collapse_key.as_deref(), &payload.message_id);
        Ok(Self { plaintext, topic, urgency })
    }
}

/// Returns a topic of at most 32 characters: the hash of the collapse key, or the message id, so that a
/// repeated delivery replaces the first.
fn topic(collapse_key: Option<&str>, message_id: &MessageId) -> HeaderValue {
    let text = match collapse_key {
        Some(key) => {
            let hash = digest(&SHA256, key.as_bytes());
            base64url::encode(hash.as_ref().get(..TOPIC_HASH_LEN).unwrap_or_default())
        }
        None => base64url::encode(message_id.as_uuid().as_bytes()),
    };
    // The alphabet of base64url is one of header values.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("message"))
}

/// A declarative push message (W3C Push API). Browsers that do not know the form give it to the service
/// worker as any other message.
#[derive(Serialize)]
struct Declarative<'a> {
    web_push: u16,
    notification: Shown<'a>,
    /// The place of the badge in the W3C's draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    app_badge: Option<u32>,
}

#[derive(Serialize)]
struct Shown<'a> {
    title: Literal<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Literal<'a>>,
    navigate: Cow<'a, str>,
    tag: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    /// The place of the badge in Safari.
    #[serde(skip_serializing_if = "Option::is_none")]
    app_badge: Option<u32>,
    data: Data,
}

#[derive(Serialize)]
struct Data {
    message_id: MessageId,
}

/// Writes the declarative form; `None` for a payload that no browser would show in it: data, or a
/// notification without a title.
fn declarative(payload: &Payload<'_>, open: &str) -> Option<Vec<u8>> {
    let Payload { message_id, hints, .. } = payload;
    let notification = payload.notification.as_ref()?;
    let title = notification.title.filter(|title| !title.text().is_empty())?;
    let tag = match hints.collapse_key.as_deref() {
        Some(key) => Cow::Borrowed(key),
        None => Cow::Owned(message_id.to_string()),
    };
    let message = Declarative {
        web_push: 8030,
        notification: Shown {
            title,
            body: notification.desc,
            navigate: link(notification).unwrap_or(Cow::Borrowed(open)),
            tag,
            icon: notification.icon.as_ref().map(Literal::text).filter(|icon| is_https(icon)),
            image: hints.image.as_deref().filter(|image| is_https(image)),
            app_badge: hints.badge,
            data: Data { message_id: *message_id },
        },
        app_badge: hints.badge,
    };
    serde_json::to_vec(&message).ok()
}

/// The link that the notification opens. Safari shows no notification whose link is not absolute.
fn link<'a>(notification: &Notification<'a>) -> Option<Cow<'a, str>> {
    let link = notification.open_content.filter(|_| notification.open_type == Some(2))?.text();
    Url::parse(&link).is_ok().then_some(link)
}

fn is_https(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.scheme() == "https")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::{
        super::account::tests::{account, declarative_account},
        *,
    };
    use crate::testing::{self, MESSAGE_ID};

    /// A notification with these fields changed.
    pub(in crate::webpush) fn payload(changes: &Value) -> Vec<u8> {
        let mut payload: Value = serde_json::from_slice(&testing::payload(
            1,
            r#""notification":{"notification_type":1,"title":"Hi \u2603","desc":"there"}"#,
        ))
        .unwrap();
        for (name, value) in changes.as_object().unwrap() {
            payload[name] = value.clone();
        }
        serde_json::to_vec(&payload).unwrap()
    }

    fn message(payload: &[u8], account: Option<&Account>) -> Result<Message, TooLarge> {
        Message::new(&Content::read(payload).unwrap(), account)
    }

    fn declarative_form(changes: &Value) -> Value {
        let message = message(&payload(changes), Some(&declarative_account())).unwrap();
        serde_json::from_slice(&message.plaintext).unwrap()
    }

    #[test]
    fn a_payload_is_sent_as_it_is() {
        let payload = payload(&json!({}));
        for account in [None, Some(account())] {
            let message = message(&payload, account.as_ref()).unwrap();
            assert_eq!(message.plaintext, payload);
        }
    }

    #[test]
    fn a_payload_of_3993_bytes_is_carried_and_one_byte_more_is_too_large() {
        let with_desc = |len: usize| {
            payload(&json!({ "notification": { "notification_type": 1, "desc": "x".repeat(len) } }))
        };
        let room = MAX_PLAINTEXT_LEN - with_desc(0).len();
        assert_eq!(message(&with_desc(room), None).unwrap().plaintext.len(), 3993);
        let error = message(&with_desc(room + 1), None).unwrap_err();
        assert_eq!(error.to_string(), "webpush carries 3993 bytes, and this is 1 more");
    }

    #[test]
    fn the_topic_is_the_message_id_or_the_hash_of_the_collapse_key() {
        let plain = message(&payload(&json!({})), None).unwrap();
        assert_eq!(plain.topic, "AZLwwSs6fE2OX2BxgpOktQ");
        let of =
            |key: &str| message(&payload(&json!({ "collapse_key": key })), None).unwrap().topic;
        assert_eq!(of("score"), of("score"));
        assert_ne!(of("score"), of("scores"));
        for key in ["a", "é \"☃\"", &"x".repeat(64)] {
            let topic = of(key);
            assert_eq!(topic.len(), 32);
            let alphabet = |b: &u8| b.is_ascii_alphanumeric() || b"-_".contains(b);
            assert!(topic.as_bytes().iter().all(alphabet), "{topic:?}");
        }
    }

    #[test]
    fn the_priority_is_the_urgency() {
        let of = |hints: &Value| message(&payload(hints), None).unwrap().urgency;
        assert_eq!(of(&json!({})), None);
        assert_eq!(of(&json!({ "priority": "high" })).unwrap(), "high");
        assert_eq!(of(&json!({ "priority": "normal" })).unwrap(), "normal");
    }

    #[test]
    fn an_account_says_that_notifications_are_declarative() {
        assert_eq!(
            declarative_form(&json!({ "badge": 3, "image": "https://app.example/a.png" })),
            json!({
                "web_push": 8030,
                "notification": {
                    "title": "Hi \u{2603}",
                    "body": "there",
                    "navigate": "https://app.example/",
                    "tag": MESSAGE_ID,
                    "image": "https://app.example/a.png",
                    "app_badge": 3,
                    "data": { "message_id": MESSAGE_ID },
                },
                "app_badge": 3,
            })
        );
        let tag = &declarative_form(&json!({ "collapse_key": "score" }))["notification"]["tag"];
        assert_eq!(tag, "score");
    }

    #[test]
    fn a_declarative_notification_opens_its_link_if_that_is_absolute() {
        let navigate = |link: &str, open_type: u8| {
            let notification = json!({
                "notification_type": 3, "title": "a", "open_type": open_type, "open_content": link,
                "icon": "icon_name",
            });
            let form = declarative_form(&json!({ "notification": notification }));
            assert!(form["notification"].get("icon").is_none(), "no resource of an Android app");
            form["notification"]["navigate"].as_str().unwrap().to_owned()
        };
        assert_eq!(navigate("https://app.example/sale", 2), "https://app.example/sale");
        assert_eq!(navigate("/sale", 2), "https://app.example/");
        assert_eq!(navigate("https://app.example/sale", 1), "https://app.example/");
    }

    #[test]
    fn data_and_a_notification_without_a_title_go_to_the_service_worker() {
        for changes in [
            json!({ "type": 2, "notification": null, "data": { "a": "b" } }),
            json!({ "notification": { "notification_type": 1, "desc": "there" } }),
            json!({ "notification": { "notification_type": 1, "title": "" } }),
        ] {
            assert!(declarative_form(&changes).get("web_push").is_none(), "{changes}");
        }
    }
}
