//! The names under which browsers may reach the console.
//!
//! A foreign page can make its own name resolve to the console's address ("DNS rebinding"), and then is a page of the
//! console's origin for the browser. So a request for a page must name the console as it is known: by an address, which
//! no resolver answers for, as `localhost`, or by the host of `--admin-public-url`. With a certificate of its own, the
//! browser has checked the name.
//!
//! The admin API needs no such check: its key is in a header that browsers send for no page.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header, uri::Authority};

/// The origin that browsers see, where a proxy stands before the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    origin: String,
    host: String,
    is_https: bool,
}

impl PublicUrl {
    /// Reads `https://push.example.com`.
    ///
    /// # Errors
    /// Says what the value must be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || "must be https://host[:port] or http://host[:port], without a path".to_owned();
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let default_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(wrong()),
        };
        let host = authority.host().to_ascii_lowercase();
        let (behind_host, port) =
            (&authority.as_str()[authority.host().len()..], authority.port_u16());
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        // A user stands before the host, and a wrong port behind it.
        if host.is_empty()
            || !is_bare
            || behind_host.is_empty() != port.is_none()
            || authority.as_str().contains('@')
        {
            return Err(wrong());
        }
        // As a browser writes it: without the port that the scheme implies (WHATWG URL, "origin").
        let port = port.filter(|port| *port != default_port);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Ok(Self { origin: format!("{scheme}://{host}{port}"), host, is_https: scheme == "https" })
    }

    /// Returns `https://push.example.com`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

/// The names of one console.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) public: Option<PublicUrl>,
    /// The address that it listens on.
    pub(crate) listen: IpAddr,
    /// True if it has a certificate of its own.
    pub(crate) is_tls: bool,
}

impl Names {
    /// Returns true if browsers reach it over TLS, by its own certificate or that of a proxy.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_tls || self.public.as_ref().is_some_and(|public| public.is_https)
    }

    /// Returns the port that a request names, and none if it names a host that is not this console.
    pub(crate) fn port_of(&self, headers: &HeaderMap) -> Option<u16> {
        let mut named = headers.get_all(header::HOST).iter();
        let (host, None) = (named.next()?, named.next()) else { return None };
        let authority: Authority = host.to_str().ok()?.parse().ok()?;
        let implied = if self.is_secure() { 443 } else { 80 };
        self.has(authority.host()).then(|| authority.port_u16().unwrap_or(implied))
    }

    fn has(&self, host: &str) -> bool {
        if self.is_tls && self.public.is_none() {
            return true;
        }
        if self.public.as_ref().is_some_and(|public| public.host.eq_ignore_ascii_case(host)) {
            return true;
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(ip) => {
                let (ip, listen) = (ip.to_canonical(), self.listen.to_canonical());
                ip.is_loopback() || ip == listen || listen.is_unspecified()
            }
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Returns true for the origin of a page of this console, whose request names `host`.
    pub(crate) fn is_own(&self, origin: &str, host: Option<&str>) -> bool {
        let is_public = self.public.as_ref().is_some_and(|public| public.origin == origin);
        let is_named = |(scheme, named): (&str, &str)| {
            Some(named) == host && (scheme == "https" || !self.is_secure())
        };
        is_public || origin.split_once("://").is_some_and(is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listen: &str, public: Option<&str>, is_tls: bool) -> Names {
        let public = public.map(|url| PublicUrl::parse(url).unwrap());
        Names { public, listen: listen.parse().unwrap(), is_tls }
    }

    fn port(names: &Names, host: &'static str) -> Option<u16> {
        let headers = [(header::HOST, http::HeaderValue::from_static(host))];
        names.port_of(&headers.into_iter().collect())
    }

    #[test]
    fn a_public_url_is_an_origin_as_browsers_write_it() {
        for (text, origin) in [
            ("https://Push.Example.com", "https://push.example.com"),
            ("https://push.example.com:443/", "https://push.example.com"),
            ("http://[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
        ] {
            assert_eq!(PublicUrl::parse(text).unwrap().origin(), origin, "{text}");
        }
        for wrong in [
            "",
            "push.example.com",
            "https://",
            "ftp://a",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a:b",
            "https://a:",
            "https://:443",
            "https://a b",
        ] {
            assert!(PublicUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn on_loopback_no_invented_name_passes() {
        let local = names("127.0.0.1", None, false);
        for (host, at) in
            [("127.0.0.1:8082", 8082), ("LOCALHOST:9", 9), ("[::1]:9", 9), ("127.8.8.8", 80)]
        {
            assert_eq!(port(&local, host), Some(at), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8082",
            "localhost.evil.example",
            "10.0.0.1:8082",
            "",
            "a@b",
            ":80",
        ] {
            assert_eq!(port(&local, host), None, "{host}");
        }
        assert_eq!(local.port_of(&HeaderMap::new()), None);
        let twice = ["localhost", "evil.example"]
            .map(|host| (header::HOST, http::HeaderValue::from_static(host)));
        assert_eq!(
            local.port_of(&twice.into_iter().fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            })),
            None
        );
    }

    #[test]
    fn elsewhere_the_address_the_public_name_or_a_certificate_of_its_own_is_asked_for() {
        let everywhere = names("0.0.0.0", Some("https://push.example.com"), false);
        assert!(everywhere.is_secure());
        assert_eq!(port(&everywhere, "Push.example.com"), Some(443));
        assert_eq!(port(&everywhere, "10.0.0.1:8082"), Some(8082));
        assert_eq!(port(&everywhere, "other.example.com"), None);
        let one = names("10.0.0.1", None, false);
        assert_eq!((port(&one, "10.0.0.1"), port(&one, "10.0.0.2")), (Some(80), None));
        assert_eq!(port(&names("0.0.0.0", None, true), "push.example.com"), Some(443));
        assert_eq!(port(&names("0.0.0.0", Some("https://a"), true), "push.example.com"), None);
    }
}
