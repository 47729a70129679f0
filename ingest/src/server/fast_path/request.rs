//! Which requests the fast path takes.
//!
//! It leaves every request to hyper that it does not understand for certain. So hyper alone decides
//! how unusual requests are framed, and no request is framed in two ways. A test sends the same
//! bytes to both.

use std::mem::MaybeUninit;

use http::Method;

use crate::head::Head;

/// Requests with more headers are left to hyper.
const MAX_HEADERS: usize = 32;

/// What some bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A request that the fast path takes.
    Request(Request<'a>),
    /// The beginning of what may become one.
    Partial,
    /// Something that is left to hyper.
    Unsupported,
}

/// The head of a request, and its framing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) head: Head<'a>,
    /// How long the head is, with the empty line after it.
    pub(super) head_bytes: usize,
    /// How long the body is that follows.
    pub(super) body_bytes: u64,
}

/// Parses the request that these bytes begin with. Its head may have `max_head` bytes.
pub(super) fn parse(bytes: &[u8], max_head: usize) -> Parsed<'_> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(head_bytes)) if head_bytes <= max_head => {
            match supported(&request) {
                Some((head, body_bytes)) => {
                    Parsed::Request(Request { head, head_bytes, body_bytes })
                }
                None => Parsed::Unsupported,
            }
        }
        Ok(httparse::Status::Partial) if bytes.len() < max_head => Parsed::Partial,
        // This includes what is not HTTP: hyper finds that out, and how it is answered.
        _ => Parsed::Unsupported,
    }
}

/// The head and the length of the body, if the fast path takes this request.
fn supported<'a>(request: &httparse::Request<'_, 'a>) -> Option<(Head<'a>, u64)> {
    if request.version != Some(1) {
        return None;
    }
    let mut head = Head {
        method: match request.method? {
            "POST" => Method::POST,
            "GET" => Method::GET,
            "PUT" => Method::PUT,
            "DELETE" => Method::DELETE,
            _ => return None,
        },
        path: path(request.path?)?,
        authorization: None,
        content_type: None,
        content_encoding: None,
        idempotency_key: None,
        expects: false,
        stream_head: None,
    };
    let mut length = None;
    for header in request.headers.iter() {
        let is = |name| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let before = length.replace(content_length(header.value)?);
            if before.is_some() {
                return None;
            }
        } else if is("authorization") {
            head.authorization.get_or_insert(header.value);
        } else if is("content-type") {
            head.content_type.get_or_insert(header.value);
        } else if is("content-encoding") {
            head.content_encoding.get_or_insert(header.value);
        } else if is("idempotency-key") {
            head.idempotency_key.get_or_insert(header.value);
        } else if is("connection") {
            // HTTP/1.1 keeps connections without being asked to.
            if !header.value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is("transfer-encoding") || is("expect") || is("upgrade") {
            return None;
        }
    }
    Some((head, length.unwrap_or(0)))
}

/// The path of a target in origin form (RFC 9112 section 3.2.1), without its query.
fn path(target: &str) -> Option<&str> {
    let is_usual = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%:?=&".contains(&b);
    if !target.starts_with('/') || !target.bytes().all(is_usual) {
        return None;
    }
    target.split('?').next()
}

/// The length, if it is written with digits and nothing else (RFC 9110 section 8.6).
fn content_length(value: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(value).ok()?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}
