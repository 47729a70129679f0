//! The part of a request's head that the handlers need.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
};

use crate::client::{Peer, Sender};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The client's address, as proxies pass it on.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Preferences of the client (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// W3C Trace Context, section 3.2.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The scheme of a device's token.
const BEARER: &[u8] = b"Bearer ";

/// A request without its body. If a header was sent several times, the first one counts, but for
/// `traceparent`, of which there must be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    /// The client's address, or that of the proxy in between if it is not trusted.
    pub(crate) peer: IpAddr,
    /// The request names another client, and the peer is not trusted to.
    pub(crate) is_claim_ignored: bool,
    /// The path as it was sent, without the query.
    pub(crate) path: &'a str,
    /// The query as it was sent, without its question mark; empty if there is none.
    pub(crate) query: &'a str,
    pub(crate) authorization: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) content_encoding: Option<&'a [u8]>,
    pub(crate) idempotency_key: Option<&'a [u8]>,
    /// The preferences of the client, unchecked.
    pub(crate) prefer: Option<&'a [u8]>,
    /// The caller's place in a distributed trace, unchecked.
    pub(crate) traceparent: Option<&'a [u8]>,
    /// The client waits for a `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub(crate) expects: bool,
    /// The size of the head if the request is an HTTP/2 stream; the handlers check it. HTTP/1 heads
    /// are bounded while they are read, and have none here.
    pub(crate) stream_head: Option<usize>,
    /// The request is answered within a span of its own, which is rare.
    pub(crate) has_span: bool,
}

impl<'a> Head<'a> {
    /// Returns the head of a request of this client.
    #[cfg(test)]
    pub(crate) fn of(parts: &'a http::request::Parts, peer: &Peer) -> Self {
        let Sender { address, is_claim_ignored } = sender(&parts.headers, peer);
        let header = |name| parts.headers.get(name).map(HeaderValue::as_bytes);
        let mut parents = parts.headers.get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes);
        Self {
            method: parts.method.clone(),
            peer: address,
            is_claim_ignored,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            authorization: header(AUTHORIZATION),
            content_type: header(CONTENT_TYPE),
            content_encoding: header(CONTENT_ENCODING),
            idempotency_key: header(IDEMPOTENCY_KEY),
            prefer: preferences(&parts.headers).map(HeaderValue::as_bytes),
            traceparent: parents.next().filter(|_| parents.next().is_none()),
            expects: parts.headers.contains_key(EXPECT),
            stream_head: None,
            has_span: false,
        }
    }
}

impl Head<'_> {
    /// Returns the token of a device (RFC 6750), if the request has one in place of a secret, which has no scheme
    /// word.
    pub(crate) fn bearer_token(&self) -> Option<&[u8]> {
        let (scheme, token) = self.authorization?.split_at_checked(BEARER.len())?;
        scheme.eq_ignore_ascii_case(BEARER).then(|| token.trim_ascii())
    }

    /// Returns true if the client prefers that a push with unknown fields is refused: `Prefer:
    /// handling=strict`.
    pub(crate) fn is_strict(&self) -> bool {
        self.prefer.is_some_and(is_strict)
    }
}

/// Returns the first line of preferences that says how to handle the request.
fn preferences(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get_all(PREFER).iter().find(|value| names_handling(value.as_bytes()))
}

/// Returns true for preferences that say how to handle the request.
pub(crate) fn names_handling(preferences: &[u8]) -> bool {
    preferences.split(|byte| *byte == b',').any(|preference| {
        let name = preference.split(|byte| matches!(byte, b'=' | b';')).next();
        name.unwrap_or_default().trim_ascii().eq_ignore_ascii_case(b"handling")
    })
}

/// Returns true for preferences with `handling=strict`. A preference may have parameters, and its value may
/// stand in quotation marks (RFC 7240 section 2). The first preference of a name counts.
fn is_strict(preferences: &[u8]) -> bool {
    let parsed = preferences.split(|byte| *byte == b',').map(|preference| {
        let preference = preference.split(|byte| *byte == b';').next().unwrap_or_default();
        let mut parts = preference.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (name, unquoted.unwrap_or(value))
    });
    let handling = parsed.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(b"handling"));
    handling.is_some_and(|(_, value)| value.eq_ignore_ascii_case(b"strict"))
}

/// The head of an HTTP/2 request, with what the handlers need of it and nothing else. h2's form of a head
/// takes many times the memory of the bytes that came, and keeps those too.
#[derive(Debug)]
pub(crate) struct OwnedHead {
    method: Method,
    sender: Sender,
    path: Box<str>,
    query: Box<str>,
    /// The values of [`NEEDED`].
    values: [Option<Box<[u8]>>; NEEDED.len()],
    expects: bool,
    size: usize,
}

/// The headers that the handlers need.
static NEEDED: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_TYPE, CONTENT_ENCODING, IDEMPOTENCY_KEY, PREFER, TRACEPARENT];

impl OwnedHead {
    /// Copies the head of a request of this client. A head of more than `max` bytes is not kept: its request
    /// is refused for its size.
    pub(crate) fn of<B>(request: &Request<B>, peer: &Peer, max: usize) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
        let size = path + headers_size(headers);
        let is_kept = size <= max;
        let value = |name: &HeaderName| {
            if name == PREFER {
                return preferences(headers)
                    .filter(|_| is_kept)
                    .map(|value| value.as_bytes().into());
            }
            let mut values = headers.get_all(name).iter();
            let first = values.next().filter(|_| is_kept)?;
            let is_ambiguous = name == TRACEPARENT && values.next().is_some();
            (!is_ambiguous).then(|| first.as_bytes().into())
        };
        Self {
            method: if is_kept { request.method().clone() } else { Method::GET },
            sender: sender(headers, peer),
            path: if is_kept { uri.path().into() } else { "".into() },
            query: uri.query().filter(|_| is_kept).unwrap_or_default().into(),
            values: NEEDED.each_ref().map(value),
            expects: headers.contains_key(EXPECT),
            size,
        }
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    pub(crate) fn as_head(&self) -> Head<'_> {
        let [authorization, content_type, content_encoding, idempotency_key, prefer, traceparent] =
            self.values.each_ref().map(Option::as_deref);
        Head {
            method: self.method.clone(),
            peer: self.sender.address,
            is_claim_ignored: self.sender.is_claim_ignored,
            path: &self.path,
            query: &self.query,
            authorization,
            content_type,
            content_encoding,
            idempotency_key,
            prefer,
            traceparent,
            expects: self.expects,
            stream_head: Some(self.size),
            has_span: false,
        }
    }
}

/// The client of a request with these headers.
fn sender(headers: &HeaderMap, peer: &Peer) -> Sender {
    if !headers.contains_key(X_FORWARDED_FOR) {
        return peer.itself();
    }
    let lines = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    peer.of_forwarded(lines)
}

/// The size of headers as RFC 9113 section 6.5.2 counts it.
fn headers_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_handling_is_read_from_any_form_of_the_header() {
        for strict in [
            "handling=strict",
            "Handling = \"STRICT\"",
            "respond-async, wait=5, handling=strict; foo=bar",
            "handling=strict, handling=lenient",
        ] {
            assert!(is_strict(strict.as_bytes()), "{strict}");
        }
        for other in ["", "handling", "handling=lenient", "strict", "handlings=strict", ",;=,"] {
            assert!(!is_strict(other.as_bytes()), "{other}");
        }
    }
}
