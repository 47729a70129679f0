//! The requests that a test has sent over a connection, read back from their bytes, so that each
//! answer can be held against its request.
//!
//! Tests also send what is no request. From there on it is not known which bytes an answer belongs
//! to, and nothing more of the connection is read back.

/// A request, as far as it was sent.
pub(crate) struct SentRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: Option<String>,
    /// Absent if it was not sent to its end.
    pub(crate) body: Option<Vec<u8>>,
}

/// The requests of a connection that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct SentRequests {
    bytes: Vec<u8>,
    /// The bytes that follow cannot be told apart.
    lost: bool,
}

impl SentRequests {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if !self.lost {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The request that the next answer is for.
    pub(crate) fn next(&mut self) -> Option<SentRequest> {
        let request = if self.lost { None } else { self.read() };
        self.lost |= request.as_ref().is_none_or(|request| request.body.is_none());
        request
    }

    fn read(&mut self) -> Option<SentRequest> {
        let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&self.bytes[..end]).ok()?.to_owned();
        let mut lines = head.trim_end().split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let is_target = path.starts_with('/') || path == "*";
        if words.next() != Some("HTTP/1.1") || !is_target {
            return None;
        }
        let headers: Vec<(&str, &str)> =
            lines.map(|line| line.split_once(':')).collect::<Option<_>>()?;
        // A header that comes twice may be refused, or its first value counts.
        let value = |name: &str| {
            let mut found = headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
            let first = found.next().map(|(_, value)| value.trim().to_owned());
            if found.next().is_some() { None } else { Some(first) }
        };
        let rest = &self.bytes[end..];
        let (length, chunked) = (value("content-length")?, value("transfer-encoding")?);
        let body = match (length, chunked) {
            (None, None) => Some((Vec::new(), 0)),
            (Some(length), None) => {
                let length: usize = length.parse().ok()?;
                rest.get(..length).map(|body| (body.to_vec(), length))
            }
            (None, Some(_)) => unchunked(rest),
            (Some(_), Some(_)) => return None,
        };
        let content_type = value("content-type")?;
        let used = body.as_ref().map_or(0, |(_, used)| *used);
        self.bytes.drain(..end + used);
        Some(SentRequest { method, path, content_type, body: body.map(|(body, _)| body) })
    }
}

/// A chunked body without trailers (RFC 9112 section 7.1), and how many bytes it took.
fn unchunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?;
        // The function reads a sign, too.
        let size = if size.starts_with('+') { None } else { usize::from_str_radix(size, 16).ok() }?;
        at += line + 2;
        body.extend_from_slice(bytes.get(at..)?.get(..size)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}
