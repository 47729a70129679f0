//! Reads the head of a request, strictly.
//!
//! A service and the proxy before it must agree where a request ends: if they don't, what one
//! takes for a body is the next request for the other, with another client's credentials. So a head
//! whose host or body is ambiguous is refused (RFC 9112 sections 3.2, 6.1 and 6.3): no `Host` in
//! HTTP/1.1, or two; a length besides a transfer coding; two lengths, even if they are equal; any
//! coding but one `chunked`; a transfer coding in HTTP/1.0. A line may end with LF alone, which section
//! 2.2 allows; a lone CR does not end a line.

use std::mem::MaybeUninit;

use http::Method;

use super::{
    host::is_host,
    target::{path, query},
};
use crate::{
    client::{Peer, Sender},
    head::{Head, names_handling},
    rejection::Rejection,
};

/// The most headers of a request.
const MAX_HEADERS: usize = 100;
/// No body may be announced to be longer.
const MAX_LENGTH: u64 = i64::MAX.unsigned_abs();

/// The beginning of the bytes that were received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The head of a request, whole.
    Request(Request<'a>),
    /// The beginning of what may become one.
    Partial,
    /// A head that is refused, after which nothing more is read.
    Refused(Rejection),
}

/// A request, as its head announces it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The length of the head, with the empty line after it.
    pub(super) head_bytes: usize,
    pub(super) framing: Framing,
    /// The connection ends with its answer.
    pub(super) is_last: bool,
    /// Its answer has a body. The answer to HEAD has none.
    pub(super) answer_has_body: bool,
    /// The part that the handlers need.
    pub(super) head: Head<'a>,
}

/// The place where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Sized(u64),
    /// After the last chunk.
    Chunked,
}

/// Parses the head that these bytes of a client begin with, which may have `max_head` bytes.
pub(super) fn parse<'a>(bytes: &'a [u8], max_head: usize, peer: &Peer) -> Parsed<'a> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(head_bytes)) if head_bytes <= max_head => {
            match read(&request, head_bytes, peer) {
                Ok(request) => Parsed::Request(request),
                Err(rejection) => Parsed::Refused(rejection),
            }
        }
        Ok(httparse::Status::Partial) if bytes.len() < max_head => Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Parsed::Refused(Rejection::HeadTooLarge),
        Err(_) => Parsed::Refused(Rejection::NotHttp),
    }
}

fn read<'a>(
    request: &httparse::Request<'_, 'a>,
    head_bytes: usize,
    peer: &Peer,
) -> Result<Request<'a>, Rejection> {
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Rejection::NotHttp);
    };
    let is_1_1 = minor == 1;
    let mut fields = Fields::default();
    for header in request.headers.iter() {
        fields.read(header.name, header.value, is_1_1)?;
    }
    if is_1_1 && !fields.has_host {
        return Err(Rejection::Malformed("it must have a Host header"));
    }
    let framing = match (fields.is_chunked, fields.length) {
        (true, Some(_)) => {
            let why = "it must not have both Content-Length and Transfer-Encoding";
            return Err(Rejection::Malformed(why));
        }
        (true, None) => Framing::Chunked,
        (false, length) => Framing::Sized(length.unwrap_or(0)),
    };
    let sender = if fields.is_forwarded {
        let lines = request.headers.iter().filter(|header| is_forwarded(header.name));
        peer.of_forwarded(lines.map(|header| header.value))
    } else {
        peer.itself()
    };
    Ok(Request {
        head_bytes,
        framing,
        is_last: fields.closes || !is_1_1,
        answer_has_body: method != "HEAD",
        head: fields.into_head(method, target, sender)?,
    })
}

/// The headers that matter.
#[derive(Debug, Default)]
struct Fields<'a> {
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    expects: bool,
    authorization: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    idempotency_key: Option<&'a [u8]>,
    prefer: Option<&'a [u8]>,
    traceparent: Option<&'a [u8]>,
    has_several_traceparents: bool,
    is_forwarded: bool,
}

fn is_forwarded(name: &str) -> bool {
    name.eq_ignore_ascii_case("x-forwarded-for")
}

impl<'a> Fields<'a> {
    fn read(&mut self, name: &str, value: &'a [u8], is_1_1: bool) -> Result<(), Rejection> {
        let is = |other| name.eq_ignore_ascii_case(other);
        if is("host") {
            if self.has_host {
                return Err(Rejection::Malformed("it must have one Host header only"));
            }
            if !is_host(value) {
                let why = "its Host header must be a host, with or without a port";
                return Err(Rejection::Malformed(why));
            }
            self.has_host = true;
        } else if is("content-length") {
            if self.length.replace(content_length(value)?).is_some() {
                return Err(Rejection::Malformed("it must have one Content-Length header only"));
            }
        } else if is("transfer-encoding") {
            if self.is_chunked || !is_1_1 || !value.eq_ignore_ascii_case(b"chunked") {
                let why = "its Transfer-Encoding may only be chunked, once, in HTTP/1.1";
                return Err(Rejection::Malformed(why));
            }
            self.is_chunked = true;
        } else if is("connection") {
            let mut options = value.split(|&b| b == b',');
            self.closes |= options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if is("expect") {
            // Clients of HTTP/1.0 don't know it (RFC 9110 section 10.1.1).
            self.expects |= is_1_1 && value.eq_ignore_ascii_case(b"100-continue");
        } else if is("authorization") {
            self.authorization.get_or_insert(value);
        } else if is("content-type") {
            self.content_type.get_or_insert(value);
        } else if is("content-encoding") {
            self.content_encoding.get_or_insert(value);
        } else if is("idempotency-key") {
            self.idempotency_key.get_or_insert(value);
        } else if is("prefer") {
            // The first line that says it counts (RFC 7240 section 2).
            if !self.prefer.is_some_and(names_handling) {
                self.prefer = Some(value);
            }
        } else if is("traceparent") {
            self.has_several_traceparents |= self.traceparent.replace(value).is_some();
        } else if is_forwarded(name) {
            self.is_forwarded = true;
        }
        Ok(())
    }

    /// The head as the handlers need it.
    fn into_head(
        self,
        method: &str,
        target: &'a str,
        sender: Sender,
    ) -> Result<Head<'a>, Rejection> {
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Rejection::NotHttp)?;
        Ok(Head {
            path: path(&method, target).ok_or(Rejection::NotHttp)?,
            query: query(target),
            method,
            peer: sender.address,
            is_claim_ignored: sender.is_claim_ignored,
            authorization: self.authorization,
            content_type: self.content_type,
            content_encoding: self.content_encoding,
            idempotency_key: self.idempotency_key,
            prefer: self.prefer,
            traceparent: self.traceparent.filter(|_| !self.has_several_traceparents),
            expects: self.expects,
            stream_head: None,
            has_span: false,
        })
    }
}

/// The length, written with digits and nothing else (RFC 9110 section 8.6).
fn content_length(value: &[u8]) -> Result<u64, Rejection> {
    let digits = str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(length) if length <= MAX_LENGTH => Ok(length),
        _ => Err(Rejection::Malformed("its Content-Length must be a number of bytes")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const MAX_HEAD: usize = 8192;
    const PEER: Peer = Peer::client(IpAddr::V4(Ipv4Addr::LOCALHOST));

    fn with(headers: &str) -> String {
        format!("POST /p HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n")
    }

    fn request(bytes: &str) -> Request<'_> {
        match parse(bytes.as_bytes(), MAX_HEAD, &PEER) {
            Parsed::Request(request) => request,
            other => panic!("{other:?} of {bytes}"),
        }
    }

    fn is_malformed(bytes: impl AsRef<[u8]>) -> bool {
        matches!(parse(bytes.as_ref(), MAX_HEAD, &PEER), Parsed::Refused(Rejection::Malformed(_)))
    }

    #[test]
    fn a_request_whose_end_is_in_doubt_is_refused() {
        for headers in [
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length: 0x3",
            "Content-Length:",
            "Content-Length: 9223372036854775808",
            "Content-Length: 18446744073709551615",
            "Content-Length: 18446744073709551616",
            "Content-Length: 3\r\ncontent-length: 3",
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding:",
        ] {
            assert!(is_malformed(with(headers)), "{headers}");
        }
        assert!(is_malformed("POST /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
        assert_eq!(request(&with("Transfer-Encoding: Chunked")).framing, Framing::Chunked);
        assert_eq!(request(&with("Content-Length: 007")).framing, Framing::Sized(7));
        assert_eq!(request(&with("X: y")).framing, Framing::Sized(0));
    }

    #[test]
    fn a_request_names_one_host_and_http_1_0_may_name_none() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@x\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: x/\r\n\r\n",
        ] {
            assert!(is_malformed(head), "{head}");
        }
        assert!(request("GET / HTTP/1.0\r\n\r\n").is_last);
        assert!(!request("GET / HTTP/1.1\r\nHost:\r\n\r\n").is_last);
    }

    #[test]
    fn a_request_is_the_last_if_it_says_so() {
        for (headers, is_last) in [
            ("Connection: keep-alive", false),
            ("Connection: closed", false),
            ("Connection: Close", true),
            ("Connection: keep-alive, close", true),
            ("Connection: close\r\nConnection: keep-alive", true),
        ] {
            assert_eq!(request(&with(headers)).is_last, is_last, "{headers}");
        }
        assert!(!request("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").answer_has_body);
    }

    #[test]
    fn a_head_is_unfinished_until_its_last_byte_and_no_longer_than_it_may_be() {
        let head = with("Content-Length: 3");
        let head = head.as_bytes();
        for end in 0..head.len() {
            assert_eq!(parse(&head[..end], MAX_HEAD, &PEER), Parsed::Partial, "{end}");
        }
        assert!(matches!(parse(head, head.len(), &PEER), Parsed::Request(_)));
        let too_large = Parsed::Refused(Rejection::HeadTooLarge);
        assert_eq!(parse(head, head.len() - 1, &PEER), too_large);
        assert_eq!(parse(&head[..20], 20, &PEER), too_large);
        let many = with(&"X: y\r\n".repeat(100));
        assert_eq!(parse(many.as_bytes(), MAX_HEAD, &PEER), too_large);
    }

    #[test]
    fn what_is_not_http_1_is_refused() {
        for bytes in
            ["hello\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n"]
        {
            let refused = Parsed::Refused(Rejection::NotHttp);
            assert_eq!(parse(bytes.as_bytes(), MAX_HEAD, &PEER), refused, "{bytes}");
        }
        assert_eq!(
            parse(with("X: a\r\n b").as_bytes(), MAX_HEAD, &PEER),
            Parsed::Refused(Rejection::NotHttp)
        );
    }
}
