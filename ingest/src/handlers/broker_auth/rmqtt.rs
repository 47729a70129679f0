//! RMQTT with `rmqtt-auth-http`: 200 with the one word `allow` or `deny`.
//!
//! The plugin takes every other text of a 200 for `allow`, and every other status for "not
//! answered": then the next check decides, and RMQTT's own list of rules ends in one that allows
//! everything, unless the operator has changed it.

use http::StatusCode;

use super::{Access, Answer, Fields};
use crate::reply::{self, Reply};

pub(super) fn access<'a>(fields: &Fields, topic: &'a str) -> Option<Access<'a>> {
    match fields.get("access") {
        "1" => Some(Access::Subscribe(topic)),
        "2" => Some(Access::Publish(topic)),
        _ => None,
    }
}

pub(super) fn reply(answer: &Answer) -> Reply {
    let word = match answer {
        Answer::Connect(_) | Answer::Allow => "allow",
        Answer::Refuse(_) => "deny",
    };
    reply::text(StatusCode::OK, word)
}
