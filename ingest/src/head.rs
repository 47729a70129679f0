//! What the handlers need of a request's head, whether the fast path or hyper has read it.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
    request::Parts,
};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// W3C Trace Context, section 3.2.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request without its body. If a header was sent several times, the first one counts, but for
/// `traceparent`, of which there must be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    /// The client's address, or that of the proxy in between.
    pub(crate) peer: IpAddr,
    /// The path as it was sent, without the query.
    pub(crate) path: &'a str,
    pub(crate) authorization: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) content_encoding: Option<&'a [u8]>,
    pub(crate) idempotency_key: Option<&'a [u8]>,
    /// Where the caller is in a distributed trace, unchecked.
    pub(crate) traceparent: Option<&'a [u8]>,
    /// Whether the client waits for a `100 Continue` before it sends the body (RFC 9110 section
    /// 10.1.1).
    pub(crate) expects: bool,
    /// The size of the head if the request is an HTTP/2 stream; the handlers check it. HTTP/1 heads
    /// are bounded while they are read, and have none here.
    pub(crate) stream_head: Option<usize>,
    /// Whether the request is answered within a span of its own, which is rare.
    pub(crate) has_span: bool,
}

impl<'a> Head<'a> {
    /// The head of a request of this client that hyper has read.
    pub(crate) fn of(parts: &'a Parts, peer: IpAddr) -> Self {
        let header = |name| parts.headers.get(name).map(HeaderValue::as_bytes);
        let mut parents = parts.headers.get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes);
        Self {
            method: parts.method.clone(),
            peer,
            path: parts.uri.path(),
            authorization: header(AUTHORIZATION),
            content_type: header(CONTENT_TYPE),
            content_encoding: header(CONTENT_ENCODING),
            idempotency_key: header(IDEMPOTENCY_KEY),
            traceparent: parents.next().filter(|_| parents.next().is_none()),
            expects: parts.headers.contains_key(EXPECT),
            stream_head: (parts.version == Version::HTTP_2).then(|| {
                let path = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
                path + headers_size(&parts.headers)
            }),
            has_span: false,
        }
    }
}

/// The size of headers as RFC 9113 section 6.5.2 counts it.
fn headers_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}
