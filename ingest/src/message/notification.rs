//! The fields of a notification. A field that has no effect for the notification type stays raw
//! JSON: whatever it holds, it is accepted and not delivered.

use std::borrow::Cow;

use push_model::{localized::Localized, message::Notification, text::Literal};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::{
    json::{illegal, read_value},
    localized::read_localized,
    notes::Notes,
    whole_number::{NotWhole, WholeNumber, whole},
};
use crate::rejection::Rejection;

const SYSTEM: u8 = 1;
const BUTTON: u8 = 3;

#[derive(Default, Deserialize)]
pub(super) struct NotificationFields<'a> {
    notification_type: Option<WholeNumber>,
    #[serde(borrow)]
    title: Option<Literal<'a>>,
    #[serde(borrow)]
    desc: Option<Literal<'a>>,
    #[serde(borrow)]
    icon: Option<&'a RawValue>,
    #[serde(borrow)]
    button_text: Option<&'a RawValue>,
    #[serde(borrow)]
    small_icon: Option<&'a RawValue>,
    #[serde(borrow)]
    small_icon_color: Option<&'a RawValue>,
    open_type: Option<OpenType>,
    #[serde(borrow)]
    open_content: Option<Literal<'a>>,
    #[serde(borrow)]
    localized: Option<&'a RawValue>,
}

/// 1 or 2, as a number or as a string.
#[derive(Clone, Copy)]
struct OpenType(u8);

impl<'de> Deserialize<'de> for OpenType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "expected 1 (open the app) or 2 (open a link)";
        let json = <&RawValue>::deserialize(deserializer)?.get();
        let text: Option<Cow<'_, str>> = serde_json::from_str(json).ok();
        match (whole(json), text.as_deref()) {
            (Ok(1), _) | (_, Some("1")) => Ok(Self(1)),
            (Ok(2), _) | (_, Some("2")) => Ok(Self(2)),
            (Ok(_), _) | (_, Some(_)) => {
                Err(de::Error::custom(format!("invalid value, {EXPECTED}")))
            }
            (Err(NotWhole::Type(what)), _) => Err(de::Error::custom(format!("{what}, {EXPECTED}"))),
            (Err(problem), _) => Err(de::Error::custom(format!("{problem}, {EXPECTED}"))),
        }
    }
}

impl<'a> NotificationFields<'a> {
    /// Checks the fields, and notes those without effect.
    pub(super) fn check(self, notes: &mut Notes) -> Result<Notification<'a>, Rejection> {
        let is_empty = |text: Option<&Literal<'_>>| {
            text.is_none_or(|literal| literal.text().trim().is_empty())
        };
        if is_empty(self.title.as_ref()) && is_empty(self.desc.as_ref()) {
            notes.note(match self.localized {
                None => {
                    "the notification has neither title nor desc, so a device has no text to show"
                }
                Some(_) => {
                    "the notification has neither title nor desc, so a device of a language that \
                     notification.localized lacks has no text to show"
                }
            });
        }
        self.note_without_effect(notes);
        let mut notification = Notification {
            title: self.title,
            desc: self.desc,
            open_type: self.open_type.map(|OpenType(number)| number),
            open_content: self.open_content,
            ..Notification::default()
        };
        match self.notification_type {
            None | Some(WholeNumber(1)) => {
                notification.notification_type = SYSTEM;
                notification.small_icon = text(self.small_icon, "notification.small_icon")?;
                notification.small_icon_color = colour(self.small_icon_color)?;
            }
            Some(WholeNumber(3)) => {
                notification.notification_type = BUTTON;
                notification.icon = text(self.icon, "notification.icon")?;
                notification.button_text = text(self.button_text, "notification.button_text")?;
            }
            Some(_) => {
                return Err(illegal(
                    "notification.notification_type must be 1 (system) or 3 (button)",
                ));
            }
        }
        Ok(notification)
    }
}

impl NotificationFields<'_> {
    /// Reads the texts in other languages.
    pub(super) fn localized(&self, notes: &mut Notes) -> Result<Option<Localized>, Rejection> {
        Ok(self.localized.map(|raw| read_localized(raw, notes)).transpose()?.flatten())
    }

    fn note_without_effect(&self, notes: &mut Notes) {
        let is_button = matches!(self.notification_type, Some(WholeNumber(3)));
        let of_system = [
            ("notification.small_icon", self.small_icon),
            ("notification.small_icon_color", self.small_icon_color),
        ];
        let of_button =
            [("notification.icon", self.icon), ("notification.button_text", self.button_text)];
        let (others, kind) = match is_button {
            true => (of_system, "notification_type 3 (button)"),
            false => (of_button, "notification_type 1 (system)"),
        };
        for (field, _) in others.iter().filter(|(_, value)| value.is_some()) {
            notes.without_effect(field, kind);
        }
    }
}

fn text<'a>(raw: Option<&'a RawValue>, path: &str) -> Result<Option<Literal<'a>>, Rejection> {
    raw.map(|raw| read_value(raw.get(), path)).transpose()
}

fn colour(raw: Option<&RawValue>) -> Result<Option<Literal<'_>>, Rejection> {
    const PATH: &str = "notification.small_icon_color";
    let colour = text(raw, PATH)?;
    let valid = |literal: Literal<'_>| {
        let text = literal.text();
        let hex = text.strip_prefix('#').unwrap_or_default();
        hex.len() == 6 && hex.bytes().all(|b| b.is_ascii_hexdigit())
    };
    match colour {
        Some(literal) if !valid(literal) => Err(illegal(format!("{PATH} must be like #RRGGBB"))),
        colour => Ok(colour),
    }
}
