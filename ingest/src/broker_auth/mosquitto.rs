//! Mosquitto with `mosquitto-go-auth` or one of its forks: the HTTP backend with the response modes
//! `status` and `text`. Every 2xx lets the client in; a 5xx is an error, which the plugin counts as
//! a refusal too and does not remember.

use http::StatusCode;

use super::{Access, Answer, Fields, Refusal};
use crate::reply::{self, Reply};

/// Reads the plugin's question: 1 is about a message to be delivered, 2 about a publish, 4 about a
/// subscription.
pub(super) fn access<'a>(fields: &Fields, topic: &'a str) -> Option<Access<'a>> {
    match fields.get("acc") {
        "1" | "4" => Some(Access::Subscribe(topic)),
        "2" => Some(Access::Publish(topic)),
        _ => None,
    }
}

pub(super) fn reply(answer: &Answer) -> Reply {
    match answer {
        Answer::Connect(_) | Answer::Allow => reply::text(StatusCode::OK, "ok"),
        Answer::Refuse(Refusal::Unavailable) => {
            reply::text(StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        Answer::Refuse(_) | Answer::NoSuperuser => reply::text(StatusCode::FORBIDDEN, "refused"),
    }
}
