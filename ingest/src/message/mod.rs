//! The body of a push: read, checked, and turned into what travels.
//!
//! What a push's types do not use has no effect, whatever it is. So the parts are first taken as
//! raw JSON and only read when they are used. The usual, valid push is read without knowing
//! where in the document one is; only a mistake is read a second time to name its place.

mod condition;
mod data;
mod notification;
mod read;

use std::collections::BTreeMap;

use push_shared::{
    ids::{AppId, MessageId},
    message::{Audience, Notification, Payload},
    text::Text,
    time::UnixMillis,
};
use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use self::read::read_fields;
use self::read::{Whole, read};
use crate::{rejection::Rejection, settings::Rules};

/// A push that is allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Push<'a> {
    /// Everything is checked, nothing is sent.
    pub(crate) dry_run: bool,
    /// Seconds.
    pub(crate) time_to_live: u64,
    /// Whom it is for.
    pub(crate) audience: Audience,
    content: Content<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Content<'a> {
    Notification(Notification<'a>),
    Data(BTreeMap<Text<'a>, Text<'a>>),
}

#[derive(Deserialize)]
struct Body<'a> {
    dry_run: Option<bool>,
    #[serde(rename = "type")]
    kind: Option<Whole>,
    time_to_live: Option<Whole>,
    #[serde(borrow)]
    condition: Option<&'a RawValue>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl<'a> Push<'a> {
    /// Reads and checks a body.
    pub(crate) fn read(body: &'a [u8], rules: Rules) -> Result<Self, Rejection> {
        let text = read::utf8(body)?;
        let body: Body<'_> = read(text, "")?;
        let kind = body.kind.ok_or_else(|| required("type"))?;
        let Whole(time_to_live) = body.time_to_live.ok_or_else(|| required("time_to_live"))?;
        let condition = body.condition.ok_or_else(|| required("condition"))?;
        let content = match kind {
            Whole(1) => Content::Notification(notification::read_notification(body.notification)?),
            Whole(2) => Content::Data(data::read_data(body.data)?),
            _ => return Err(illegal("type must be 1 (notification) or 2 (data)")),
        };
        let audience = condition::read_condition(condition, rules)?;
        Ok(Self { dry_run: body.dry_run.unwrap_or(false), time_to_live, audience, content })
    }

    /// What a device receives, and whom it is for.
    pub(crate) fn into_parts(
        self,
        message_id: MessageId,
        app_id: AppId,
        accepted_at: UnixMillis,
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
            accepted_at,
            expires_at: accepted_at.plus_seconds(self.time_to_live),
        };
        (payload, self.audience)
    }
}

fn illegal(problem: impl Into<String>) -> Rejection {
    Rejection::MessageIllegal(problem.into())
}

fn required(field: &str) -> Rejection {
    illegal(format!("{field} is required"))
}

#[cfg(test)]
mod tests;
