//! The target of a request (RFC 9112 section 3.2).

use http::Method;

use super::host::is_host;

/// The schemes of targets in absolute form.
const SCHEMES: [&str; 2] = ["http://", "https://"];

/// The path of a target, as it was sent and without its query. Returns `None` for a target that HTTP
/// does not have, or that some readers cut at a character that others pass on.
pub(super) fn path<'a>(method: &Method, target: &'a str) -> Option<&'a str> {
    if target.bytes().any(|byte| matches!(byte, b'#' | b'<' | b'>' | b'"' | b'`')) {
        return None;
    }
    match (method, target) {
        // The authority that a proxy would connect to. This service has no such path.
        (&Method::CONNECT, "*") => None,
        (&Method::CONNECT, authority) => is_authority(authority).then_some(""),
        (_, "*") => Some(target),
        (_, target) if target.starts_with('/') => target.split('?').next(),
        (_, target) => absolute(target),
    }
}

/// The query of a target that has a path; empty if there is none.
pub(super) fn query(target: &str) -> &str {
    target.split_once('?').map_or("", |(_, query)| query)
}

/// The path of a target in absolute form, which proxies send.
fn absolute(target: &str) -> Option<&str> {
    let has_scheme = |scheme: &&str| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = SCHEMES.into_iter().find(has_scheme)?;
    let rest = &target[scheme.len()..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let path = rest.split('?').next()?;
    is_authority(authority).then_some(if path.is_empty() { "/" } else { path })
}

fn is_authority(text: &str) -> bool {
    !text.is_empty() && is_host(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_one_of_four_forms() {
        for (target, expected) in [
            ("/", Some("/")),
            ("/v1/a%2Fb?c=d?e", Some("/v1/a%2Fb")),
            ("//a", Some("//a")),
            ("*", Some("*")),
            ("http://push/v1/a?b", Some("/v1/a")),
            ("HTTPS://push:8080", Some("/")),
            ("http://[::1]?a", Some("/")),
            ("http://", None),
            ("http:///a", None),
            ("http://[", None),
            ("http://user@push/a", None),
            ("ftp://push/a", None),
            ("push:8080", None),
            ("a", None),
            ("/a#b", None),
            ("/a<b", None),
            ("/a?\"", None),
        ] {
            assert_eq!(path(&Method::GET, target), expected, "{target}");
        }
        for (target, expected) in [("/a?b?c", "b?c"), ("/a", ""), ("http://push?a", "a")] {
            assert_eq!(query(target), expected, "{target}");
        }
        assert_eq!(path(&Method::CONNECT, "push:443"), Some(""));
        assert_eq!(path(&Method::CONNECT, "/"), None);
        assert_eq!(path(&Method::CONNECT, "*"), None);
    }
}
