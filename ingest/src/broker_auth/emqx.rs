//! EMQX 5 and newer: "Use HTTP Service" for authentication and for authorization.
//!
//! The answer is 200 with a JSON object. Since 5.8 the answer to a login may have the client's rules
//! and its end, and then EMQX asks no more about that client.

use http::StatusCode;
use push_credentials::acl::Rule;
use serde::Serialize;

use super::{Access, Answer, Fields};
use crate::reply::{self, Reply};

#[derive(Serialize)]
struct Body {
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_superuser: Option<bool>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acl: Option<[Rule; 3]>,
}

pub(super) fn access<'a>(fields: &Fields, topic: &'a str) -> Option<Access<'a>> {
    match fields.get("action") {
        "subscribe" => Some(Access::Subscribe(topic)),
        "publish" => Some(Access::Publish(topic)),
        _ => None,
    }
}

pub(super) fn reply(answer: &Answer) -> Reply {
    let nothing = Body { result: "deny", is_superuser: None, expire_at: None, acl: None };
    let body = match answer {
        Answer::Refuse(_) | Answer::NoSuperuser => nothing,
        Answer::Allow => Body { result: "allow", ..nothing },
        Answer::Connect(client) => Body {
            result: "allow",
            is_superuser: Some(false),
            expire_at: client.expires_at(),
            acl: Some(client.rules()),
        },
    };
    // A struct of texts and numbers always has a JSON form.
    reply::json(StatusCode::OK, serde_json::to_vec(&body).unwrap_or_default())
}
