//! URLs that a tenant or a device names.

use url::{Host, Position, Url};

/// Reads a URL to which requests go: `https:` or `http:`, without user name and fragment. The rules for
/// addresses decide if it may be reached; with `http:` they allow only networks that the operator opened.
pub(crate) fn outside_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_http = matches!(url.scheme(), "https" | "http");
    let is_plain =
        url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (is_http && url.has_host() && is_plain).then_some(url)
}

/// Reads such a URL to which secrets go: `https:`. `http:` is accepted with a loopback host alone, for tests
/// on one machine.
pub(crate) fn secure_url(text: &str) -> Option<Url> {
    outside_url(text).filter(|url| url.scheme() == "https" || is_loopback(url))
}

/// Returns true if the host names the same machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns true for `localhost` and the names below it (RFC 6761, section 6.3).
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    last.eq_ignore_ascii_case("localhost")
}

/// Splits a URL into its origin, such as `https://push.example:8443`, and its path with the query.
pub(crate) fn split(url: &Url) -> (&str, &str) {
    (&url[..Position::BeforePath], &url[Position::BeforePath..Position::AfterQuery])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_outside_is_one_of_http_without_user_name_and_fragment() {
        for secure in [
            "https://push.example/a",
            "https://push.example:8443/a?b=c",
            "https://[2001:db8::1]/",
            "http://127.0.0.1:9/a",
            "http://[::1]:9/a",
            "http://localhost:9/a",
        ] {
            assert!(outside_url(secure).is_some() && secure_url(secure).is_some(), "{secure}");
        }
        for plain in ["http://push.lan/a", "http://127.0.0.1.example/a", "http://10.0.0.1/a"] {
            assert!(outside_url(plain).is_some() && secure_url(plain).is_none(), "{plain}");
        }
        for bad in [
            "",
            "push.example/a",
            "ftp://push.example/",
            "https:///",
            "https://user@push.example/",
            "https://:secret@push.example/",
            "https://push.example/#a",
            "file:///etc/passwd",
            "unix:/run/a",
        ] {
            assert!(outside_url(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_url_is_split_into_origin_and_path() {
        for (text, origin, path) in [
            ("https://push.example", "https://push.example", "/"),
            ("https://PUSH.example:443/a?b", "https://push.example", "/a?b"),
            ("https://push.example:8443/a", "https://push.example:8443", "/a"),
            ("http://[::1]:9/", "http://[::1]:9", "/"),
        ] {
            assert_eq!(split(&outside_url(text).unwrap()), (origin, path));
        }
    }
}
