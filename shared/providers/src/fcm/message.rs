//! A payload as an FCM message, without what differs by device and time.
//!
//! A push of type 1 becomes a notification that Android shows by itself; `data` has what a notification of FCM
//! has no field for. A push of type 2 becomes a message with `data` alone, for the app. docs/reference/hints.md has the
//! table.
//!
//! FCM refuses some names in `data` and overwrites others. A name of the push is prefixed by `data.` if FCM or
//! this service uses it, and if it begins with `data.` itself, so that no two names become one.

use std::borrow::Cow;

use bytes::Bytes;
use push_model::{
    device::TransportKind,
    hints::Priority,
    message::{Notification, Payload},
};
use serde::{Serialize, Serializer};

use crate::TooLarge;

/// The most bytes of the names and values that reach the device.
const LIMIT: usize = 4096;
/// The names in `data` that are this service's.
const OWN_NAMES: [&str; 3] = ["message_id", "app_id", "sequence"];
/// The names that FCM refuses or overwrites.
const RESERVED_NAMES: [&str; 3] = ["from", "message_type", "collapse_key"];
/// The beginnings of names that FCM refuses.
const RESERVED_PREFIXES: [&str; 2] = ["google", "gcm"];
/// The beginning of a name of the push that is reserved.
const PREFIX: &str = "data.";
/// The action of the activity that is opened by a tap on a notification with a link.
const OPEN_LINK: &str = "OPEN_LINK";
/// `open_type` of a link.
const OPEN_TYPE_LINK: u8 = 2;
/// The largest number of FCM's int32 fields.
const MAX_COUNT: u32 = i32::MAX.unsigned_abs();

/// A message, except for the device's address and the time to live.
#[derive(Debug)]
pub struct Message {
    /// The JSON that follows the time to live, from the comma to the end of the message.
    pub(super) tail: Bytes,
    size: usize,
}

impl Message {
    pub(super) fn build(payload: &Payload<'_>) -> Result<Self, TooLarge> {
        let parts = Parts::of(payload);
        let size = parts.size();
        if size > LIMIT {
            return Err(TooLarge { kind: TransportKind::Fcm, size, limit: LIMIT });
        }
        Ok(Self { tail: parts.tail().into(), size })
    }

    /// Returns the bytes of the names and values that reach the device, which FCM limits to 4,096. The bytes
    /// of the JSON around them do not count.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// The parts of a message.
struct Parts<'a> {
    priority: &'static str,
    collapse_key: Option<&'a str>,
    notification: Fields<'a>,
    android_notification: Fields<'a>,
    data: Fields<'a>,
}

impl<'a> Parts<'a> {
    fn of(payload: &'a Payload<'_>) -> Self {
        let mut parts = Self {
            priority: match payload.hints.priority {
                Some(Priority::Normal) => "NORMAL",
                Some(Priority::High) => "HIGH",
                None if payload.notification.is_some() => "HIGH",
                None => "NORMAL",
            },
            collapse_key: payload.hints.collapse_key.as_deref(),
            notification: Fields::default(),
            android_notification: Fields::default(),
            data: Fields::default(),
        };
        parts.data.text("message_id", Some(payload.message_id.to_string().into()));
        parts.data.text("app_id", Some(payload.app_id.as_str().into()));
        parts.data.text("sequence", Some(payload.sequence.to_string().into()));
        if let Some(notification) = &payload.notification {
            parts.notify(payload, notification);
        }
        for (name, value) in payload.data.iter().flatten() {
            parts.data.0.push((unreserved(name), Value::Text(Cow::Borrowed(&**value))));
        }
        parts
    }

    fn notify(&mut self, payload: &'a Payload<'_>, notification: &'a Notification<'_>) {
        let Notification {
            notification_type,
            title,
            desc,
            icon,
            button_text,
            small_icon,
            small_icon_color,
            open_type,
            open_content,
        } = notification;
        let hints = &payload.hints;
        self.notification.text("title", title.map(|title| title.text()));
        self.notification.text("body", desc.map(|desc| desc.text()));
        self.notification.text("image", hints.image.as_deref().map(Cow::Borrowed));

        let android = &mut self.android_notification;
        android.text("icon", small_icon.map(|icon| icon.text()));
        android.text("color", small_icon_color.map(|color| color.text()));
        android.text("sound", hints.sound.as_deref().map(Cow::Borrowed));
        let tag =
            self.collapse_key.map_or_else(|| payload.message_id.to_string().into(), Cow::Borrowed);
        android.text("tag", Some(tag));
        let action = (*open_type == Some(OPEN_TYPE_LINK)).then_some(Cow::Borrowed(OPEN_LINK));
        android.text("click_action", action);
        android.text("channel_id", hints.channel_id.as_deref().map(Cow::Borrowed));
        if let Some(badge) = hints.badge {
            android.0.push(("notification_count".into(), Value::Number(badge.min(MAX_COUNT))));
        }

        let data = &mut self.data;
        data.text("notification_type", Some(notification_type.to_string().into()));
        data.text("open_type", open_type.map(|kind| kind.to_string().into()));
        data.text("open_content", open_content.map(|link| link.text()));
        data.text("icon", icon.map(|icon| icon.text()));
        data.text("button_text", button_text.map(|text| text.text()));
        data.text("category", hints.category.as_deref().map(Cow::Borrowed));
    }

    fn size(&self) -> usize {
        self.notification.size() + self.android_notification.size() + self.data.size()
    }

    fn tail(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Android<'a> {
            priority: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            collapse_key: Option<&'a str>,
            #[serde(skip_serializing_if = "Fields::is_empty")]
            notification: &'a Fields<'a>,
        }
        #[derive(Serialize)]
        struct Rest<'a> {
            #[serde(skip_serializing_if = "Fields::is_empty")]
            notification: &'a Fields<'a>,
            data: &'a Fields<'a>,
        }
        let android = Android {
            priority: self.priority,
            collapse_key: self.collapse_key,
            notification: &self.android_notification,
        };
        let rest = Rest { notification: &self.notification, data: &self.data };
        // Texts and numbers are always written.
        let android = serde_json::to_vec(&android).unwrap_or_default();
        let rest = serde_json::to_vec(&rest).unwrap_or_default();
        [b",", android.get(1..).unwrap_or_default(), b",", rest.get(1..).unwrap_or_default()]
            .concat()
    }
}

/// Returns the name in `data` of a name of the push.
fn unreserved(name: &str) -> Cow<'_, str> {
    let is_reserved = name.is_empty()
        || OWN_NAMES.contains(&name)
        || RESERVED_NAMES.contains(&name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with(PREFIX);
    if is_reserved { format!("{PREFIX}{name}").into() } else { name.into() }
}

/// The fields of an object, in their order.
#[derive(Default)]
struct Fields<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Text(Cow<'a, str>),
    Number(u32),
}

impl<'a> Fields<'a> {
    fn text(&mut self, name: &'static str, value: Option<Cow<'a, str>>) {
        self.0.extend(value.map(|value| (name.into(), Value::Text(value))));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.size()).sum()
    }
}

impl Value<'_> {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Number(number) => number.to_string().len(),
        }
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests;
