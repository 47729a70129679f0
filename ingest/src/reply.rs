//! Answers as HTTP. All of them have one form, `{"status":…,"message":…}`, with `result` on
//! success.

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER},
};
use httpdate::HttpDate;
use push_model::ids::MessageId;
use serde::Serialize;
use uuid::fmt::Hyphenated;

use crate::{allowance::RateStatus, rejection::Rejection, route::Document};

/// The time that a client should wait after a 503, in seconds.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 1;

/// The longest body that is copied, so that it is sent together with the head.
const MAX_COPIED: usize = 4096;

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// The media type of all answers but those to many pushes.
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
/// The media type of a request with many pushes, and of its answer.
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// An answer on its way to the client.
#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    media_type: &'static str,
    /// The headers that not every answer has.
    headers: HeaderMap,
    body: Bytes,
    /// The connection ends with this answer (HTTP/1 only).
    pub(crate) close: bool,
}

impl Reply {
    fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let (media_type, headers) = (JSON, HeaderMap::new());
        Self { status, media_type, headers, body: body.into(), close: false }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer as HTTP/2: its head, and its body.
    pub(crate) fn into_http2(self) -> (Response<()>, Bytes) {
        let Self { status, media_type, mut headers, body, close: _ } = self;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(CONTENT_LENGTH, body.len().into());
        // Always a valid value.
        if let Ok(date) = HttpDate::from(SystemTime::now()).to_string().try_into() {
            headers.insert(DATE, date);
        }
        let mut response = Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        (response, body)
    }

    /// Keeps this until the body was handed to the system, or the client was given up. HTTP/2 keeps an
    /// answer in memory for as long as the client gives its stream no window for it (RFC 9113 section
    /// 5.2), which is after the answer exists.
    pub(crate) fn holding<G: Send + 'static>(self, guard: G) -> Self {
        let body = Bytes::from_owner(Held { body: self.body, _guard: guard });
        Self { body, ..self }
    }

    /// Adds the headers with the rest of an app's rate limit.
    pub(crate) fn put_rate(&mut self, rate: RateStatus) {
        self.headers.insert(RATELIMIT_LIMIT, rate.limit.into());
        self.headers.insert(RATELIMIT_REMAINING, rate.remaining.into());
        self.headers.insert(RATELIMIT_RESET, rate.reset.into());
    }

    /// Writes the answer as HTTP/1.1 (RFC 9112): whole, or as to HEAD, without its body. Returns the body if it
    /// is long: it is sent behind what was written, and not copied for each client.
    pub(crate) fn write_http1(&self, date: &mut Date, has_body: bool, out: &mut Vec<u8>) -> Bytes {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut put = |text: &[u8]| out.extend_from_slice(text);
        put(b"HTTP/1.1 ");
        put(self.status.as_str().as_bytes());
        put(b" ");
        put(reason.as_bytes());
        put(b"\r\ncontent-type: ");
        put(self.media_type.as_bytes());
        put(b"\r\ndate: ");
        put(date.now().as_bytes());
        for (name, value) in &self.headers {
            put(b"\r\n");
            put(name.as_str().as_bytes());
            put(b": ");
            put(value.as_bytes());
        }
        if self.close {
            put(b"\r\nconnection: close");
        }
        // Writing to a vector cannot fail.
        let _ = write!(out, "\r\ncontent-length: {}\r\n\r\n", self.body.len());
        if has_body && self.body.len() > MAX_COPIED {
            return self.body.clone();
        }
        if has_body {
            out.extend_from_slice(&self.body);
        }
        Bytes::new()
    }
}

/// A body, and what is dropped with it.
struct Held<G> {
    body: Bytes,
    _guard: G,
}

impl<G> AsRef<[u8]> for Held<G> {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The `date` header of answers (RFC 9110 section 6.6.1), formatted once a second.
#[derive(Debug, Default)]
pub(crate) struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &str {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second != second || self.text.is_empty() {
            (self.second, self.text) = (second, HttpDate::from(now).to_string());
        }
        &self.text
    }
}

/// The body of the answer to an accepted push, before and behind its id.
const ACCEPTED: [&str; 2] = [r#"{"status":200,"message":"OK","result":{"message_id":""#, r#""}}"#];

/// The beginning of the warnings in that answer, which few answers have, and the end after them.
const WARNINGS: [&str; 2] = [r#"","warnings":"#, "}}"];

/// Answers a push that is accepted, with warnings for its sender.
pub(crate) fn accepted(id: MessageId, warnings: &[String]) -> Reply {
    let [head, tail] = ACCEPTED;
    let mut text = [0; Hyphenated::LENGTH];
    let id = id.as_uuid().as_hyphenated().encode_lower(&mut text);
    if warnings.is_empty() {
        return Reply::new(StatusCode::OK, [head, id, tail].concat());
    }
    let [begin, end] = WARNINGS;
    Reply::new(StatusCode::OK, [head, id, begin, &texts(warnings), end].concat())
}

/// Writes texts as a JSON array.
fn texts(texts: &[String]) -> String {
    serde_json::Value::from(texts).to_string()
}

/// The answer to a request with many lines: for each a line, with the body of the answer that it would have got
/// in a request of its own.
#[derive(Debug)]
pub(crate) struct Lines<M> {
    text: Vec<u8>,
    /// The share of the memory for bodies that these lines occupy. It is returned when they are
    /// sent.
    _memory: M,
}

impl<M: Send + 'static> Lines<M> {
    /// Has room for this many answers to accepted pushes.
    pub(crate) fn of(count: usize, memory: M) -> Self {
        let [head, tail] = ACCEPTED;
        let line = head.len() + Hyphenated::LENGTH + tail.len() + 1;
        Self { text: Vec::with_capacity(count * line), _memory: memory }
    }

    /// Adds the answer to a push that is accepted, with warnings for its sender.
    pub(crate) fn accepted(&mut self, id: MessageId, warnings: &[String]) {
        let ([head, tail], [begin, end]) = (ACCEPTED, WARNINGS);
        let mut text = [0; Hyphenated::LENGTH];
        let id = id.as_uuid().as_hyphenated().encode_lower(&mut text);
        let mut put = |part: &str| self.text.extend_from_slice(part.as_bytes());
        put(head);
        put(id);
        if warnings.is_empty() {
            put(tail);
        } else {
            put(begin);
            put(&texts(warnings));
            put(end);
        }
        put("\n");
    }

    /// Adds the answer to another line that succeeds.
    pub(crate) fn succeeded<T: Serialize>(&mut self, result: &T) {
        // The results are structs of strings, which always have a JSON form.
        self.text.extend_from_slice(&success_body(result).unwrap_or_default());
        self.text.push(b'\n');
    }

    /// Adds the answer to a line that is refused.
    pub(crate) fn rejected(&mut self, rejection: &Rejection) {
        self.text.extend_from_slice(error_body(rejection).as_bytes());
        self.text.push(b'\n');
    }

    /// The whole answer.
    pub(crate) fn reply(self) -> Reply {
        let body = Bytes::from_owner(self);
        Reply { media_type: NDJSON, ..Reply::new(StatusCode::OK, body) }
    }
}

impl<M> AsRef<[u8]> for Lines<M> {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Answers any other request that succeeds.
pub(crate) fn success<T: Serialize>(result: &T) -> Result<Reply, serde_json::Error> {
    Ok(Reply::new(StatusCode::OK, success_body(result)?))
}

fn success_body<T: Serialize>(result: &T) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Success<'a, T> {
        status: u32,
        message: &'static str,
        result: &'a T,
    }
    serde_json::to_vec(&Success { status: 200, message: "OK", result })
}

/// An answer in a form of its own, as JSON.
pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Reply {
    Reply::new(status, body)
}

/// An answer in a form of its own, as text.
pub(crate) fn text(status: StatusCode, body: &'static str) -> Reply {
    Reply { media_type: TEXT, ..Reply::new(status, body) }
}

/// A document of the description of the HTTP API (OpenAPI 3.1). They are written by hand; the tests hold
/// their requests and answers against them.
pub(crate) fn description(document: Document) -> Reply {
    const APPS: &[u8] = include_bytes!("../openapi.json");
    const BROKERS: &[u8] = include_bytes!("../openapi/brokers.json");
    const OPERATIONS: &[u8] = include_bytes!("../openapi/operations.json");
    let text = match document {
        Document::Apps => APPS,
        Document::Brokers => BROKERS,
        Document::Operations => OPERATIONS,
    };
    Reply::new(StatusCode::OK, text)
}

/// The body of an answer that is not a success.
pub(crate) fn error_body(rejection: &Rejection) -> String {
    let message = serde_json::Value::from(rejection.message());
    format!(r#"{{"status":{},"message":{message}}}"#, rejection.number())
}

/// Answers a request that is rejected.
pub(crate) fn rejected(rejection: &Rejection) -> Reply {
    let mut reply = Reply::new(rejection.http_status(), error_body(rejection));
    match rejection {
        Rejection::NoSuchMethod(allow) => {
            reply.headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Rejection::Unavailable(_) | Rejection::QueueBlocked(_) | Rejection::AppMoved => {
            reply.headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        Rejection::TooFrequent(rate) | Rejection::TooManyCalls(rate) => {
            reply.headers.insert(RETRY_AFTER, rate.retry_after.into());
            reply.put_rate(*rate);
        }
        Rejection::MessagesUsedUp { used_up, .. } => {
            reply.headers.insert(RETRY_AFTER, used_up.retry_after.into());
        }
        Rejection::TooManyFailedLogins { retry_after }
        | Rejection::DeviceTooFrequent { retry_after } => {
            reply.headers.insert(RETRY_AFTER, (*retry_after).into());
        }
        _ => {}
    }
    reply
}

/// An answer in HTTP/1.1 for a connection that ends without a request that could be read: whole, or as to
/// HEAD, without its body.
pub(crate) fn last_http1(rejection: &Rejection, has_body: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let reply = Reply { close: true, ..rejected(rejection) };
    let body = reply.write_http1(&mut Date::default(), has_body, &mut bytes);
    bytes.extend_from_slice(&body);
    bytes
}

#[cfg(test)]
mod tests;
