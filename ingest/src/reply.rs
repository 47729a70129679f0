//! Answers as HTTP: one envelope, `{"status":…,"message":…}`, with `result` on success.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::Full;
use push_shared::ids::MessageId;
use serde::Serialize;

use crate::{rate::Quota, rejection::Rejection};

/// An answer on its way to the client.
pub(crate) type Reply = Response<Full<Bytes>>;

/// How long a client should wait after a 503, in seconds.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 1;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply
}

/// The push is accepted.
pub(crate) fn accepted(id: MessageId) -> Reply {
    const HEAD: &str = r#"{"status":200,"message":"OK","result":{"message_id":""#;
    const TAIL: &str = r#""}}"#;
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let id = id.as_uuid().as_hyphenated().encode_lower(&mut text);
    json(StatusCode::OK, [HEAD, id, TAIL].concat())
}

/// Success of any other call.
pub(crate) fn success<T: Serialize>(result: &T) -> Result<Reply, serde_json::Error> {
    #[derive(Serialize)]
    struct Success<'a, T> {
        status: u32,
        message: &'static str,
        result: &'a T,
    }
    let body = serde_json::to_vec(&Success { status: 200, message: "OK", result })?;
    Ok(json(StatusCode::OK, body))
}

/// The envelope of an answer that is not a success.
pub(crate) fn error_body(rejection: &Rejection) -> String {
    let message = serde_json::Value::from(rejection.message());
    format!(r#"{{"status":{},"message":{message}}}"#, rejection.number())
}

/// Every answer that is not a success.
pub(crate) fn rejected(rejection: &Rejection) -> Reply {
    let mut reply = json(rejection.http_status(), error_body(rejection));
    let headers = reply.headers_mut();
    match rejection {
        Rejection::NoSuchMethod(allow) => {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Rejection::Unavailable(_) => {
            headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        Rejection::TooFrequent(quota) => {
            headers.insert(RETRY_AFTER, quota.retry_after.into());
            put_quota(headers, *quota);
        }
        _ => {}
    }
    reply
}

/// Says what is left of an app's rate limit.
pub(crate) fn put_quota(headers: &mut HeaderMap, quota: Quota) {
    headers.insert(RATELIMIT_LIMIT, quota.limit.into());
    headers.insert(RATELIMIT_REMAINING, quota.remaining.into());
    headers.insert(RATELIMIT_RESET, quota.reset.into());
}

/// Says that the connection ends with this answer (HTTP/1 only).
pub(crate) fn put_close(reply: &mut Reply) {
    reply.headers_mut().insert(CONNECTION, CLOSE);
}

/// A whole answer in HTTP/1.1, for where there is no request to answer. The connection ends
/// with it.
pub(crate) fn bare_http1(rejection: &Rejection) -> Vec<u8> {
    let (status, body) = (rejection.http_status(), error_body(rejection));
    let reason = status.canonical_reason().unwrap_or_default();
    let retry = match rejection {
        Rejection::Unavailable(_) => format!("retry-after: {RETRY_AFTER_SECONDS}\r\n"),
        _ => String::new(),
    };
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         {retry}connection: close\r\n\r\n{body}",
        status.as_u16(),
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn body(reply: Reply) -> Bytes {
        reply.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn an_accepted_push_is_answered_in_exactly_the_documented_bytes() {
        let id: MessageId = "01890000-0000-7000-8000-00000000000A".parse().unwrap();
        assert_eq!(
            body(accepted(id)).await,
            r#"{"status":200,"message":"OK","result":{"message_id":"01890000-0000-7000-8000-00000000000a"}}"#
        );
    }

    #[tokio::test]
    async fn what_a_caller_sent_is_escaped_when_it_is_named() {
        let reply = rejected(&Rejection::MessageIllegal("unknown field `\"\n`".into()));
        let json: serde_json::Value = serde_json::from_slice(&body(reply).await).unwrap();
        assert_eq!(json["status"], 21005);
        assert_eq!(json["message"], "Message illegal: unknown field `\"\n`");
    }
}
