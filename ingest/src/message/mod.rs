//! The body of a push: read, checked, and split into what a device receives and the audience.
//!
//! Three fields named type (of the push, its condition, its notification) say which others are
//! used. The others have no effect and may hold anything, so a field can be judged only once the
//! types are known. But almost every push is valid in all of its fields, so the body is first read
//! in one pass, each field as its type. Only if that fails is it read again with its objects as raw
//! JSON. The objects that are used are then parsed, and the one with an error is parsed once more
//! to find the JSON path of the error.
//!
//! - `condition`: the audience, with `filter` and `sample`;
//! - `notification` with `localized`, `data`: the content, for the push types 1 and 2;
//! - `hints`: how it arrives, for both types;
//! - `notes`: what the sender of a valid push should know;
//! - `json`: parsing, and the text that names an error with its JSON path;
//! - `whole_number`: whole numbers, read without rounding.

mod condition;
mod data;
mod filter;
mod hints;
mod json;
mod localized;
mod notes;
mod notification;
mod sample;
mod whole_number;

use std::collections::BTreeMap;

use push_model::{
    custom::Declarations,
    hints::Hints,
    ids::{AppId, AudienceKind, MessageId, UserId},
    localized::Localized,
    message::{Audience, Notification, Payload},
    targeting::Targeting,
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
    notes::near,
    whole_number::{NotWhole, whole},
};
use crate::{rejection::Rejection, settings::Rules};

/// What a push is checked against beside the contract.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppRules<'d> {
    /// The limits of this service.
    pub(crate) limits: Rules,
    /// The attributes that the app declares.
    pub(crate) attributes: &'d Declarations,
}

/// The audience that a condition asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The audience without the devices of `users`.
    pub(crate) audience: Audience,
    /// The users whose devices are to be added, each once.
    pub(crate) users: Vec<UserId>,
}

impl From<Audience> for Wanted {
    fn from(audience: Audience) -> Self {
        Self { audience, users: Vec::new() }
    }
}

impl From<Targeting> for Wanted {
    fn from(targeting: Targeting) -> Self {
        Audience::Targeting(targeting).into()
    }
}

/// A push whose fields are all valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Push<'a> {
    /// The push is checked and answered, but not sent.
    pub(crate) dry_run: bool,
    /// Seconds.
    pub(crate) time_to_live: u64,
    pub(crate) wanted: Wanted,
    content: Content<'a>,
    hints: Hints<'a>,
    /// What its sender should know.
    pub(crate) notes: Notes,
}

#[derive(Debug, PartialEq, Eq)]
enum Content<'a> {
    /// With its texts in other languages.
    Notification(Notification<'a>, Option<Localized>),
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
    pub(crate) fn read(body: &'a [u8], app: AppRules<'_>) -> Result<Self, Rejection> {
        let text = utf8(body)?;
        match serde_json::from_str::<Object<ParsedBody<'_>>>(text) {
            Ok(Object(body, known)) => Self::check(body, (text, known), app),
            Err(_) => Self::read_used_fields(text, app),
        }
    }

    /// Reads and checks a line of a batch request. The idempotency key is not checked.
    pub(crate) fn read_line(
        line: &'a [u8],
        app: AppRules<'_>,
    ) -> Result<(Self, Option<Text<'a>>), Rejection> {
        let text = utf8(line)?;
        match serde_json::from_str::<Object<ParsedLine<'_>>>(text) {
            Ok(Object(line, known)) => {
                let (body, key) = line.into_body_and_key();
                Ok((Self::check(body, (text, known), app)?, key))
            }
            Err(_) => {
                let Object(line, known) = read_object::<RawLine<'_>>(text, "")?;
                let (body, key) = line.into_body_and_key();
                Ok((Self::check(body, (text, known), app)?, key))
            }
        }
    }

    /// Reads a body of which a field that is not used may be invalid.
    fn read_used_fields(text: &'a str, app: AppRules<'_>) -> Result<Self, Rejection> {
        let Object(body, known) = read_object::<RawBody<'_>>(text, "")?;
        Self::check(body, (text, known), app)
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
        app: AppRules<'_>,
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
                let localized = fields.localized(&mut notes)?;
                Content::Notification(fields.check(&mut notes)?, localized)
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
        let wanted = condition.check(app, &mut notes)?;
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
        Ok(Self { dry_run, time_to_live, wanted, content, hints, notes })
    }

    /// Returns the kind of audience: named devices or a broadcast.
    pub(crate) fn audience_kind(&self) -> AudienceKind {
        self.wanted.audience.kind()
    }

    /// Splits a push into the payload that a device receives, its texts in other languages, and the audience, to which the devices of its users
    /// were added.
    pub(crate) fn into_parts(
        self,
        message_id: MessageId,
        app_id: AppId,
        accepted_at: UnixMillis,
        sequence: u64,
    ) -> (Payload<'a>, Option<Localized>, Audience) {
        let (kind, notification, localized, data) = match self.content {
            Content::Notification(notification, localized) => {
                (1, Some(notification), localized, None)
            }
            Content::Data(data) => (2, None, None, Some(data)),
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
        (payload, localized, self.wanted.audience)
    }
}

/// Reads the condition in a body, which may be that of a whole push. Its other fields are not looked at.
pub(crate) fn read_audience(body: &[u8], app: AppRules<'_>) -> Result<Wanted, Rejection> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        condition: Option<&'a RawValue>,
    }
    let Object(body, _) = read_object::<Body<'_>>(utf8(body)?, "")?;
    let condition = body.condition.ok_or_else(|| required("condition"))?;
    let Object(condition, _) = ParsedOrRaw::<Condition<'_>>::parsed(condition, "condition")?;
    condition.check(app, &mut Notes::default())
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
