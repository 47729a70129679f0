//! The body of a push: read, checked, and turned into what travels.
//!
//! What a push's types do not use has no effect, whatever it is: only once the types are known can
//! one say what a mistake is. But the usual push has none anywhere, so it is read in one go, every
//! part as what it should be. Only if that fails is it read again, with the parts as raw JSON of
//! which those that are used are read, and a mistake a last time, to name its place.

mod condition;
mod data;
mod notification;
mod read;

use std::collections::BTreeMap;

use push_model::{
    ids::{AppId, MessageId, Reach},
    message::{Audience, Notification, Payload},
    text::Text,
    time::UnixMillis,
};
use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use self::read::read_fields;
use self::{
    condition::Condition,
    data::Pairs,
    notification::Fields,
    read::{Object, Part, Whole, read},
};
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

/// The body of a push. Its parts are read with it, or are JSON that is still to be read.
#[derive(Deserialize)]
struct Body<C, N, D> {
    dry_run: Option<bool>,
    #[serde(rename = "type")]
    kind: Option<Whole>,
    time_to_live: Option<Whole>,
    condition: Option<C>,
    notification: Option<N>,
    data: Option<D>,
}

/// A line of a request with many pushes: a body, and the key that a single push has in a header.
#[derive(Deserialize)]
struct Line<K, C, N, D> {
    idempotency_key: Option<K>,
    dry_run: Option<bool>,
    #[serde(rename = "type")]
    kind: Option<Whole>,
    time_to_live: Option<Whole>,
    condition: Option<C>,
    notification: Option<N>,
    data: Option<D>,
}

impl<K, C, N, D> Line<K, C, N, D> {
    fn apart(self) -> (Body<C, N, D>, Option<K>) {
        let Self { idempotency_key, dry_run, kind, time_to_live, condition, notification, data } =
            self;
        (Body { dry_run, kind, time_to_live, condition, notification, data }, idempotency_key)
    }
}

type UsualLine<'a> = Line<Text<'a>, Object<Condition<'a>>, Object<Fields<'a>>, Object<Pairs<'a>>>;
type AnyLine<'a> = Line<Text<'a>, &'a RawValue, &'a RawValue, &'a RawValue>;

type UsualBody<'a> = Body<Object<Condition<'a>>, Object<Fields<'a>>, Object<Pairs<'a>>>;
type AnyBody<'a> = Body<&'a RawValue, &'a RawValue, &'a RawValue>;

impl<'a> Push<'a> {
    /// Reads and checks a body.
    pub(crate) fn read(body: &'a [u8], rules: Rules) -> Result<Self, Rejection> {
        let text = read::utf8(body)?;
        match serde_json::from_str::<Object<UsualBody<'_>>>(text) {
            Ok(Object(body)) => Self::check(body, rules),
            Err(_) => Self::read_what_is_used(text, rules),
        }
    }

    /// Reads and checks a line of a request with many pushes. The key is as it was sent.
    pub(crate) fn read_line(
        line: &'a [u8],
        rules: Rules,
    ) -> Result<(Self, Option<Text<'a>>), Rejection> {
        let text = read::utf8(line)?;
        match serde_json::from_str::<Object<UsualLine<'_>>>(text) {
            Ok(Object(line)) => {
                let (body, key) = line.apart();
                Ok((Self::check(body, rules)?, key))
            }
            Err(_) => {
                let (body, key) = read::<AnyLine<'_>>(text, "")?.apart();
                Ok((Self::check(body, rules)?, key))
            }
        }
    }

    fn read_what_is_used(text: &'a str, rules: Rules) -> Result<Self, Rejection> {
        Self::check(read::<AnyBody<'_>>(text, "")?, rules)
    }

    fn check(
        body: Body<impl Part<Condition<'a>>, impl Part<Fields<'a>>, impl Part<Pairs<'a>>>,
        rules: Rules,
    ) -> Result<Self, Rejection> {
        let kind = body.kind.ok_or_else(|| required("type"))?;
        let Whole(time_to_live) = body.time_to_live.ok_or_else(|| required("time_to_live"))?;
        let condition = body.condition.ok_or_else(|| required("condition"))?;
        let content = match kind {
            Whole(1) => {
                let fields = body.notification.map(|part| part.read("notification")).transpose()?;
                Content::Notification(fields.unwrap_or_default().check()?)
            }
            Whole(2) => {
                let pairs = body.data.map(|part| part.read("data")).transpose()?;
                Content::Data(pairs.unwrap_or_default().check()?)
            }
            _ => return Err(illegal("type must be 1 (notification) or 2 (data)")),
        };
        let audience = condition.read("condition")?.check(rules)?;
        Ok(Self { dry_run: body.dry_run.unwrap_or(false), time_to_live, audience, content })
    }

    /// Whether it names its devices.
    pub(crate) fn reach(&self) -> Reach {
        self.audience.reach()
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
