//! RMQTT with `rmqtt-auth-http`: 200 with a JSON object. Since 0.8 the answer to a login may have the
//! client's rules and its end, and then RMQTT asks no more about that client.
//!
//! About access it could not be asked safely. The plugin fills its questions by replacing one
//! placeholder after the other, also inside of what the client said before: a device that calls itself
//! `news:%A2` is `news:2` when it logs in, and `news:12` when it subscribes (`%A` is then `1`). So
//! devices are let in with rules of the token that was verified, and every question about their
//! access is refused. The workers' name has no colon, so no device can take it in this way.
//!
//! The plugin takes every other status for "not answered": then the next check decides, and RMQTT's
//! own list of rules ends in one that allows everything, unless the operator has changed it.

use http::StatusCode;
use push_credentials::acl::Rule;
use serde::Serialize;

use super::{Access, Answer, Fields};
use crate::reply::{self, Reply};

#[derive(Serialize)]
struct Body {
    result: &'static str,
    superuser: bool,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acl: Option<[Rule; 3]>,
}

/// `None` for a question about what a device may read.
pub(super) fn access<'a>(fields: &Fields, topic: &'a str) -> Option<Access<'a>> {
    match fields.get("access") {
        "2" => Some(Access::Publish(topic)),
        _ => None,
    }
}

pub(super) fn reply(answer: &Answer) -> Reply {
    let nothing = Body { result: "deny", superuser: false, expire_at: None, acl: None };
    let body = match answer {
        Answer::Refuse(_) | Answer::NoSuperuser => nothing,
        Answer::Allow => Body { result: "allow", ..nothing },
        Answer::Connect(client) => Body {
            result: "allow",
            expire_at: client.expires_at(),
            acl: Some(client.rules()),
            ..nothing
        },
    };
    // A struct of texts and numbers always has a JSON form.
    reply::json(StatusCode::OK, serde_json::to_vec(&body).unwrap_or_default())
}
