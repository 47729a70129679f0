//! The body of a push: read, checked, and split into what a device receives and the audience.
//!
//! Three fields named type (of the push, its condition, its notification) say which others are
//! used. The others have no effect and may hold anything, so a field can be judged only once the
//! types are known. But almost every push is valid in all of its fields, so the body is first read
//! in one pass, each field as its type. Only if that fails is it read again with its objects as raw
//! JSON. The objects that are used are then parsed, and the one with an error is parsed once more
//! to find the JSON path of the error.
//!
//! - `condition`: the audience;
//! - `notification`, `data`: the content, for the push types 1 and 2;
//! - `hints`: how it arrives, for both types;
//! - `notes`: what the sender of a valid push should know;
//! - `json`: parsing, and the text that names an error with its JSON path;
//! - `whole_number`: whole numbers, read without rounding.

mod condition;
mod data;
mod hints;
mod json;
mod notes;
mod notification;
mod whole_number;

use std::collections::BTreeMap;

use push_model::{
    hints::Hints,
    ids::{AppId, AudienceKind, MessageId},
    message::{Audience, Notification, Payload},
    text::Text,
    time::UnixMillis,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::{
    condition::Condition,
    data::DataPairs,
    hints::HintFields,
    json::{KnownFields, Object, ParsedOrRaw, illegal, read_object, required, utf8},
    notes::Notes,
    notification::NotificationFields,
    whole_number::WholeNumber,
};
pub(crate) use self::{
    json::read_json_body,
    whole_number::{NotWhole, whole},
};
use crate::{rejection::Rejection, settings::Rules};

/// A push whose fields are all valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Push<'a> {
    /// The push is checked and answered, but not sent.
    pub(crate) dry_run: bool,
    /// Seconds.
    pub(crate) time_to_live: u64,
    pub(crate) audience: Audience,
    content: Content<'a>,
    hints: Hints<'a>,
    /// What its sender should know.
    pub(crate) notes: Notes,
}

#[derive(Debug, PartialEq, Eq)]
enum Content<'a> {
    Notification(Notification<'a>),
    Data(BTreeMap<Text<'a>, Text<'a>>),
}

/// Defines the fields of a body and of a line of a batch request from one list. They are not flattened
/// into each other: serde would then copy every field before it reads one.
macro_rules! fields {
    (<$a:lifetime, $($kind:ident),*> $($(#[$attribute:meta])* $field:ident: $type:ty,)*) => {
        /// The fields of a body. The types stand for an object that is parsed with it ([`Object`]) or is
        /// raw JSON to be parsed if it is used.
        #[derive(Deserialize)]
        struct BodyFields<$a, $($kind),*> {
            $($(#[$attribute])* $field: $type,)*
        }

        /// The fields of a line of a batch request: those of a body, and the idempotency key, which a
        /// single push has in a header.
        #[derive(Deserialize)]
        struct LineFields<$a, K, $($kind),*> {
            idempotency_key: Option<K>,
            $($(#[$attribute])* $field: $type,)*
        }

        impl<$a, K, $($kind),*> LineFields<$a, K, $($kind),*> {
            fn into_body_and_key(self) -> (BodyFields<$a, $($kind),*>, Option<K>) {
                let Self { idempotency_key, $($field),* } = self;
                (BodyFields { $($field),* }, idempotency_key)
            }
        }
    };
}

fields! {
    <'a, C, N, D>
    dry_run: Option<bool>,
    #[serde(rename = "type")]
    kind: Option<WholeNumber>,
    time_to_live: Option<WholeNumber>,
    condition: Option<C>,
    notification: Option<N>,
    data: Option<D>,
    #[serde(borrow)]
    priority: Option<Text<'a>>,
    #[serde(borrow)]
    collapse_key: Option<Text<'a>>,
    #[serde(borrow)]
    channel_id: Option<Text<'a>>,
    #[serde(borrow)]
    category: Option<Text<'a>>,
    #[serde(borrow)]
    image: Option<Text<'a>>,
    #[serde(borrow)]
    sound: Option<Text<'a>>,
    badge: Option<WholeNumber>,
}

type ParsedBody<'a> =
    BodyFields<'a, Object<Condition<'a>>, Object<NotificationFields<'a>>, Object<DataPairs<'a>>>;
type RawBody<'a> = BodyFields<'a, &'a RawValue, &'a RawValue, &'a RawValue>;

type ParsedLine<'a> = LineFields<
    'a,
    Text<'a>,
    Object<Condition<'a>>,
    Object<NotificationFields<'a>>,
    Object<DataPairs<'a>>,
>;
type RawLine<'a> = LineFields<'a, Text<'a>, &'a RawValue, &'a RawValue, &'a RawValue>;

impl<'a> Push<'a> {
    /// Reads and checks a body.
    pub(crate) fn read(body: &'a [u8], rules: Rules) -> Result<Self, Rejection> {
        let text = utf8(body)?;
        match serde_json::from_str::<Object<ParsedBody<'_>>>(text) {
            Ok(Object(body, known)) => Self::check(body, (text, known), rules),
            Err(_) => Self::read_used_fields(text, rules),
        }
    }

    /// Reads and checks a line of a batch request. The idempotency key is not checked.
    pub(crate) fn read_line(
        line: &'a [u8],
        rules: Rules,
    ) -> Result<(Self, Option<Text<'a>>), Rejection> {
        let text = utf8(line)?;
        match serde_json::from_str::<Object<ParsedLine<'_>>>(text) {
            Ok(Object(line, known)) => {
                let (body, key) = line.into_body_and_key();
                Ok((Self::check(body, (text, known), rules)?, key))
            }
            Err(_) => {
                let Object(line, known) = read_object::<RawLine<'_>>(text, "")?;
                let (body, key) = line.into_body_and_key();
                Ok((Self::check(body, (text, known), rules)?, key))
            }
        }
    }

    /// Reads a body of which a field that is not used may be invalid.
    fn read_used_fields(text: &'a str, rules: Rules) -> Result<Self, Rejection> {
        let Object(body, known) = read_object::<RawBody<'_>>(text, "")?;
        Self::check(body, (text, known), rules)
    }

    /// Checks a body; `text` is its JSON, and `known` its fields if it has unknown ones.
    fn check(
        body: BodyFields<
            'a,
            impl ParsedOrRaw<Condition<'a>>,
            impl ParsedOrRaw<NotificationFields<'a>>,
            impl ParsedOrRaw<DataPairs<'a>>,
        >,
        (text, known): (&str, KnownFields),
        rules: Rules,
    ) -> Result<Self, Rejection> {
        let kind = body.kind.ok_or_else(|| required("type"))?;
        let WholeNumber(time_to_live) =
            body.time_to_live.ok_or_else(|| required("time_to_live"))?;
        let condition = body.condition.ok_or_else(|| required("condition"))?;
        let mut notes = Notes::default();
        notes.unknown_fields(known, text, "");
        let content = match kind {
            WholeNumber(1) => {
                let fields =
                    body.notification.map(|fields| fields.parsed("notification")).transpose()?;
                if body.data.is_some() {
                    notes.without_effect("data", "type 1 (notification)");
                }
                let fields = match fields {
                    Some(Object(fields, known)) => {
                        note_unknown_in_notification(known, text, &mut notes);
                        fields
                    }
                    None => NotificationFields::default(),
                };
                Content::Notification(fields.check(&mut notes)?)
            }
            WholeNumber(2) => {
                let pairs = body.data.map(|pairs| pairs.parsed("data")).transpose()?;
                if body.notification.is_some() {
                    notes.without_effect("notification", "type 2 (data)");
                }
                Content::Data(pairs.map(|Object(pairs, _)| pairs).unwrap_or_default().check()?)
            }
            _ => return Err(illegal("type must be 1 (notification) or 2 (data)")),
        };
        let Object(condition, _) = condition.parsed("condition")?;
        let audience = condition.check(rules, &mut notes)?;
        let hints = HintFields {
            priority: body.priority,
            collapse_key: body.collapse_key,
            channel_id: body.channel_id,
            category: body.category,
            image: body.image,
            sound: body.sound,
            badge: body.badge,
        };
        let hints = hints.check()?;
        let dry_run = body.dry_run.unwrap_or(false);
        Ok(Self { dry_run, time_to_live, audience, content, hints, notes })
    }

    /// Returns the kind of audience: named devices or a broadcast.
    pub(crate) fn audience_kind(&self) -> AudienceKind {
        self.audience.kind()
    }

    /// Splits a push into the payload that a device receives and the audience.
    pub(crate) fn into_parts(
        self,
        message_id: MessageId,
        app_id: AppId,
        accepted_at: UnixMillis,
        sequence: u64,
    ) -> (Payload<'a>, Audience) {
        let (kind, notification, data) = match self.content {
            Content::Notification(notification) => (1, Some(notification), None),
            Content::Data(data) => (2, None, Some(data)),
        };
        let payload = Payload {
            message_id,
            app_id,
            kind,
            notification,
            data,
            hints: self.hints,
            accepted_at,
            sequence,
            expires_at: accepted_at.plus_seconds(self.time_to_live),
        };
        (payload, self.audience)
    }
}

/// Reads the condition in a body, which may be that of a whole push. Its other fields are not looked at.
pub(crate) fn read_audience(body: &[u8], rules: Rules) -> Result<Audience, Rejection> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        condition: Option<&'a RawValue>,
    }
    let Object(body, _) = read_object::<Body<'_>>(utf8(body)?, "")?;
    let condition = body.condition.ok_or_else(|| required("condition"))?;
    let Object(condition, _) = ParsedOrRaw::<Condition<'_>>::parsed(condition, "condition")?;
    condition.check(rules, &mut Notes::default())
}

/// Notes the unknown fields of the notification in a body.
fn note_unknown_in_notification(known: KnownFields, body: &str, notes: &mut Notes) {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        notification: &'a RawValue,
    }
    if known.is_some()
        && let Ok(Body { notification }) = serde_json::from_str(body)
    {
        notes.unknown_fields(known, notification.get(), "notification");
    }
}

#[cfg(test)]
mod tests;
