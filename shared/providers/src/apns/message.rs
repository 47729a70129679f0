//! A payload as an APNs notification: the JSON, which is the same for all devices, and the headers that follow
//! from the payload.
//!
//! A push of type 1 becomes an alert, one of type 2 a background push. docs/reference/hints.md has the table.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::HeaderValue;
use push_model::{
    device::TransportKind,
    hints::{MAX_COLLAPSE_KEY_LEN, Priority},
    ids::{AppId, MessageId},
    message::{Notification, Payload},
    text::Text,
};
use ring::digest::{SHA256, digest};
use serde::Serialize;

use crate::TooLarge;

/// The most bytes of a payload.
const LIMIT: usize = 4096;

/// A message, except for what differs by device, account and time.
#[derive(Debug)]
pub struct Message {
    /// The payload.
    pub(super) body: Bytes,
    /// `apns-push-type`.
    pub(super) push_type: &'static str,
    /// `apns-priority`.
    pub(super) priority: &'static str,
    /// `apns-collapse-id`.
    pub(super) collapse_id: HeaderValue,
    /// `apns-id`.
    pub(super) id: HeaderValue,
}

/// The payload. Texts are written with as few escapes as JSON allows, because its bytes are limited.
#[derive(Serialize)]
struct Body<'a> {
    aps: Aps<'a>,
    message_id: MessageId,
    app_id: &'a AppId,
    #[serde(rename = "type")]
    kind: u8,
    sequence: u64,
    #[serde(flatten)]
    own: Own<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a BTreeMap<Text<'a>, Text<'a>>>,
}

/// Apple's own part.
#[derive(Serialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Aps<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<Alert<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sound: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    badge: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'a str>,
    /// Has a service extension of the app load the picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    mutable_content: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_available: Option<u8>,
}

#[derive(Serialize)]
struct Alert<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Cow<'a, str>>,
}

/// The part that the app reads: those of a notification that Apple has no field for.
#[derive(Serialize, Default)]
struct Own<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    button_text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
}

impl Message {
    pub(super) fn build(payload: &Payload<'_>) -> Result<Self, TooLarge> {
        let (aps, own) = match &payload.notification {
            Some(notification) => alert(payload, notification),
            None => (Aps { content_available: Some(1), ..Aps::default() }, Own::default()),
        };
        let body = Body {
            aps,
            message_id: payload.message_id,
            app_id: &payload.app_id,
            kind: payload.kind,
            sequence: payload.sequence,
            own,
            data: payload.data.as_ref(),
        };
        // Texts and numbers are always written.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        if body.len() > LIMIT {
            return Err(TooLarge { kind: TransportKind::Apns, size: body.len(), limit: LIMIT });
        }
        let is_alert = payload.notification.is_some();
        let id = text_header(payload.message_id.to_string());
        let collapse_id = match payload.hints.collapse_key.as_deref() {
            Some(key) => collapse_id(key),
            None => id.clone(),
        };
        Ok(Self {
            body: body.into(),
            push_type: if is_alert { "alert" } else { "background" },
            priority: match payload.hints.priority {
                Some(Priority::High) | None if is_alert => "10",
                // A background push must not have more.
                Some(Priority::High | Priority::Normal) | None => "5",
            },
            collapse_id,
            id,
        })
    }

    /// Returns the bytes of the payload, which APNs limits to 4,096.
    pub fn size(&self) -> usize {
        self.body.len()
    }
}

fn alert<'a>(payload: &'a Payload<'_>, notification: &'a Notification<'_>) -> (Aps<'a>, Own<'a>) {
    // A notification on iOS has the app's icon and no colour of its own.
    let Notification {
        notification_type,
        title,
        desc,
        icon,
        button_text,
        small_icon: _,
        small_icon_color: _,
        open_type,
        open_content,
    } = notification;
    let image = payload.hints.image.as_deref();
    let aps = Aps {
        alert: Some(Alert {
            title: title.map(|title| title.text()),
            body: desc.map(|desc| desc.text()),
        }),
        sound: payload.hints.sound.as_deref(),
        badge: payload.hints.badge,
        category: payload.hints.category.as_deref(),
        mutable_content: image.map(|_| 1),
        content_available: None,
    };
    let own = Own {
        notification_type: Some(*notification_type),
        open_type: *open_type,
        open_content: open_content.map(|link| link.text()),
        icon: icon.map(|icon| icon.text()),
        button_text: button_text.map(|text| text.text()),
        image,
    };
    (aps, own)
}

/// Returns a collapse key as a header. A name that a header cannot carry, or that is too long, is replaced by
/// its hash, which names the same messages.
fn collapse_id(key: &str) -> HeaderValue {
    let is_plain = (1..=MAX_COLLAPSE_KEY_LEN).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_graphic());
    text_header(if is_plain {
        key.to_owned()
    } else {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes()))
    })
}

/// Returns a header of visible ASCII characters.
fn text_header(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
