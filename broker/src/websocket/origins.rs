//! The web pages that may connect, by their origin (RFC 6454).
//!
//! A browser names the page's origin with every WebSocket, and other programs name none. A login is in
//! CONNECT and in no cookie, so a foreign page can do nothing in a user's name. The check keeps pages from
//! using their visitors' connections to try logins.

use std::{fmt, str::FromStr, sync::Arc};

use http::{
    Uri,
    uri::{Authority, PathAndQuery},
};

/// The origins that may connect besides the broker's own. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    listed: Arc<[Origin]>,
    all: bool,
}

/// The scheme, host and port of a page, in lower case. A port that is the scheme's default is left out.
#[derive(Clone, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl Origins {
    /// Reads origins, separated by commas, or `*`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "*" {
            return Ok(Self { all: true, ..Self::default() });
        }
        let origin = |text: &str| {
            text.trim().parse().map_err(|NotAnOrigin| {
                "must be origins like https://app.example.com, separated by commas, or *".to_owned()
            })
        };
        let listed = text.split(',').map(origin).collect::<Result<_, _>>()?;
        Ok(Self { listed, all: false })
    }

    /// Adds an origin; a text that is none changes nothing.
    pub(super) fn with(self, origin: &str) -> Self {
        let listed = self.listed.iter().cloned().chain(origin.parse::<Origin>());
        Self { listed: listed.collect(), ..self }
    }

    /// Returns true if a page of this origin may connect to the host that its request names.
    pub(super) fn allow(&self, origin: &str, host: Option<&str>) -> bool {
        if self.all {
            return true;
        }
        let Ok(origin) = origin.parse::<Origin>() else { return false };
        self.listed.contains(&origin) || host.is_some_and(|host| origin.is_of(host))
    }
}

struct NotAnOrigin;

impl FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let uri: Uri = text.parse().map_err(|_| NotAnOrigin)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(NotAnOrigin);
        };
        // Uri reads no path as "/".
        let is_bare =
            uri.path_and_query().is_none_or(|path| *path == PathAndQuery::from_static("/"));
        if !is_bare || text.ends_with('/') {
            return Err(NotAnOrigin);
        }
        let (scheme, (host, port)) = (scheme.to_ascii_lowercase(), host_and_port(authority)?);
        let port = port.filter(|port| default_port(&scheme) != Some(*port));
        Ok(Self { scheme, host, port })
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Origin {
    /// Returns true if a Host field names the host and port of this origin. A proxy may have ended TLS, so
    /// the broker does not know the scheme.
    fn is_of(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        host_and_port(&authority).is_ok_and(|(host, port)| {
            let port = port.filter(|port| default_port(&self.scheme) != Some(*port));
            (host, port) == (self.host.clone(), self.port)
        })
    }
}

fn host_and_port(authority: &Authority) -> Result<(String, Option<u16>), NotAnOrigin> {
    let (host, text) = (authority.host(), authority.as_str());
    let port = match text.strip_prefix(host) {
        Some("") => None,
        Some(port) => {
            Some(port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(NotAnOrigin)?)
        }
        // It begins with a user.
        None => return Err(NotAnOrigin),
    };
    if host.is_empty() { Err(NotAnOrigin) } else { Ok((host.to_ascii_lowercase(), port)) }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_only_pages_of_the_same_host_and_port_connect() {
        let own = Origins::default();
        let same = [
            ("https://push.example.com", "push.example.com"),
            ("https://push.example.com", "Push.Example.com:443"),
            ("http://push.example.com:80", "push.example.com"),
            ("http://127.0.0.1:8083", "127.0.0.1:8083"),
            ("http://[::1]:8083", "[::1]:8083"),
        ];
        for (origin, host) in same {
            assert!(own.allow(origin, Some(host)), "{origin} {host}");
        }
        let foreign = [
            ("https://example.com", "push.example.com"),
            ("https://push.example.com.evil.example", "push.example.com"),
            ("https://push.example.com:8443", "push.example.com"),
            ("http://push.example.com", "push.example.com:443"),
            ("https://user@push.example.com", "push.example.com"),
            ("https://push.example.com", "user@push.example.com"),
            ("null", "push.example.com"),
            ("", ""),
        ];
        for (origin, host) in foreign {
            assert!(!own.allow(origin, Some(host)), "{origin} {host}");
        }
        assert!(!own.allow("https://push.example.com", None));
    }

    #[test]
    fn listed_origins_connect_besides_the_brokers_own() {
        let listed = Origins::parse("https://app.example.com, http://localhost:5173").unwrap();
        for origin in
            ["https://app.example.com", "https://APP.example.com:443", "http://localhost:5173"]
        {
            assert!(listed.allow(origin, Some("push.example.com")), "{origin}");
        }
        assert!(listed.allow("https://push.example.com", Some("push.example.com")));
        for origin in ["http://app.example.com", "http://localhost", "https://example.com", "null"]
        {
            assert!(!listed.allow(origin, Some("push.example.com")), "{origin}");
        }
        assert!(Origins::parse("*").unwrap().allow("null", None));
    }

    #[test]
    fn what_is_no_origin_is_refused_as_a_setting() {
        let wrong = [
            "",
            "app.example.com",
            "https://",
            "https://a/",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a,",
        ];
        for wrong in wrong {
            assert!(Origins::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
