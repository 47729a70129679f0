//! The media types of bodies.

use crate::head::Head;

pub(super) const JSON: MediaType = MediaType {
    essence: b"application/json",
    missing: "Content-Type must be application/json, and is missing",
    wrong: "Content-Type must be application/json",
};
pub(super) const NDJSON: MediaType = MediaType {
    essence: b"application/x-ndjson",
    missing: "Content-Type must be application/x-ndjson, and is missing",
    wrong: "Content-Type must be application/x-ndjson",
};

/// A media type, with the texts for a caller that sends another.
pub(super) struct MediaType {
    /// Type and subtype, without parameters.
    essence: &'static [u8],
    missing: &'static str,
    wrong: &'static str,
}

impl MediaType {
    /// Checks that the body has this media type and is not compressed.
    ///
    /// # Errors
    /// The text for the caller.
    pub(super) fn check(&self, head: &Head<'_>) -> Result<(), &'static str> {
        let content_type = head.content_type.ok_or(self.missing)?;
        let essence = content_type.split(|b| *b == b';').next().unwrap_or_default();
        if !essence.trim_ascii().eq_ignore_ascii_case(self.essence) {
            return Err(self.wrong);
        }
        match head.content_encoding {
            Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => {
                Err("Content-Encoding is not supported: send the JSON as it is")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use http::{HeaderValue, Request, header::CONTENT_TYPE};

    use super::*;
    use crate::client::Peer;

    const PEER: Peer = Peer::client(IpAddr::V4(Ipv4Addr::LOCALHOST));

    #[test]
    fn json_may_have_parameters_and_nothing_else_is_json() {
        let (mut parts, ()) = Request::new(()).into_parts();
        assert!(JSON.check(&Head::of(&parts, &PEER)).is_err());
        let mut check = |text: &'static str| {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            JSON.check(&Head::of(&parts, &PEER))
        };
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "text/plain", "application/jsonx", "application/problem+json", "json"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
